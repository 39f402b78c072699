"""What torchrun starts: a process that joins the others, then runs the functions it is sent.

Run as a script by torchrun: process.py DIRECTORY BACKEND TMPDIR.
"""

import faulthandler
import logging
import os
import pickle
import re
import signal
import socket
import sys
import tempfile
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import torch.distributed as dist

from helpers.processes.travel import PackError, pack_result, unpack

# what gloo and NCCL say when another process has gone
LOST = re.compile("closed by peer|reset by peer|pair closure|remote process exited|Broken pipe")


def main(directory: str, backend: str, files: str) -> None:
    """Join the others and run functions until an empty message comes.

    `files`: where temporary files go; torchrun's are in the directory.
    """
    tempfile.tempdir = None
    os.environ.pop("TMPDIR")
    os.environ |= {"TMPDIR": files} if files else {}
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    _keep_output(Path(directory), rank)
    connection = _connect(Path(directory))
    connection.send_bytes(pickle.dumps((rank, os.getpid())))
    try:
        _join(backend)
    except Exception as error:
        connection.send_bytes(f"{type(error).__name__}: {error}".encode())
        raise
    connection.send_bytes(b"")
    while message := _next(connection):
        report = _run(message, rank, ranks)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        connection.send_bytes(report)
    dist.destroy_process_group()


def _join(backend: str) -> None:
    """Become one of the others, with a GPU of its own if there is one for each."""
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    device = None
    if backend == "nccl":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    else:  # where there are GPUs all the same, its import would say that there are none
        logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    dist.init_process_group(backend, device_id=device)


def _next(connection: Connection) -> bytes:
    try:
        return connection.recv_bytes()
    except EOFError:  # the caller has gone: no use to wait for others
        os._exit(1)


def _run(message: bytes, rank: int, ranks: int) -> bytes:
    """Run a function; return its result or what it raised, and where."""
    files: set[str] = set()
    try:
        worker, args = unpack(message, files)
        return pickle.dumps(("result", pack_result(worker(rank, ranks, *args))))
    except PackError as error:
        return pickle.dumps(("raised", str(error), None))
    except BaseException as error:
        where = None
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename in files:
                where = frame.filename, frame.lineno, frame.name
        kind = "lost" if LOST.search(str(error)) else "raised"
        said = re.split(r"\n?Exception raised from |\nC\+\+ Captured", str(error))[0].strip()
        what = type(error).__name__ + (f": {said}" if said else "")
        return pickle.dumps((kind, f"raised {what}", where))


def _keep_output(directory: Path, rank: int) -> None:
    """Let what is printed, by C++ as well, go to a file, and the stack to another if asked."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)  # not torchrun's, of which this is a fork
    file = os.open(directory / f"output{rank}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.close(file)
    sys.stdout, sys.stderr = (
        open(stream, "w", buffering=1, encoding="utf-8", closefd=False) for stream in (1, 2)
    )
    stack = open(directory / f"stack{rank}", "w")  # faulthandler keeps it open
    for number in (signal.SIGUSR1, signal.SIGTERM):  # asked by the team, or ended by torchrun
        faulthandler.register(number, stack, all_threads=False, chain=number == signal.SIGTERM)


def _connect(directory: Path) -> Connection:
    connected = socket.socket(socket.AF_UNIX)
    connected.connect(str(directory / "socket"))
    return Connection(connected.detach())


if __name__ == "__main__":
    main(*sys.argv[1:])
