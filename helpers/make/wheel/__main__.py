"""Build the CPU backend as a wheel into dist/: `make wheel`."""

import sys

from helpers.base.machine import ROOT
from helpers.make.wheel import build


def main() -> int:
    try:
        wheel = build()
    except RuntimeError as problem:
        print(problem)
        return 1
    print(f'{wheel.relative_to(ROOT)}: pip install "{wheel}[pytest]"')
    return 0


if __name__ == "__main__":
    sys.exit(main())
