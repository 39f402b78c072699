"""Show the kernel files, or take some of them along into a folder of your own.

python -m kernels list
python -m kernels list softmax
python -m kernels take softmax attention --into DIR
"""

import argparse
import os
import sys
from pathlib import Path

from kernels.take import Refusal, catalogue, take


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m kernels", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", metavar="list | take", required=True)
    listing = commands.add_parser("list", help="what there is; with names, all about these")
    listing.add_argument("names", nargs="*", metavar="name", help="of a kernel file: softmax")
    taking = commands.add_parser("take", help="write files that work alone into a folder")
    taking.add_argument("names", nargs="*", metavar="name", help="of a kernel file: softmax")
    taking.add_argument("--into", type=Path, metavar="DIR", required=True, help="made if need be")
    asked = parser.parse_args()
    try:
        if asked.command == "take":
            print(take(asked.names, asked.into))
        else:
            print(catalogue.whole(asked.names) if asked.names else catalogue.table())
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Refusal as refusal:
        sys.stderr.write(f"{refusal}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
