"""A program that runs the command line by forking: a fork has already imported everything and loaded the kernels.

Started with the number of a Unix socket. A message has the folder and the arguments as a JSON list, and comes with
three file descriptors: standard input, output and error. The reply is the exit code.
"""

import gc
import json
import os
import socket
import sys

import numpy as np

import imondrian.cli.commands.detect
import imondrian.cli.commands.info
import imondrian.cli.commands.plot
import imondrian.cli.commands.score
import imondrian.cli.commands.series
import imondrian.cli.commands.watch  # noqa: F401
from imondrian import Fleet, MondrianForest, StreamDetector
from imondrian.__main__ import main
from imondrian.model_files import from_bytes, to_bytes

MAX_MESSAGE = 2**20


def warm_up():
    """Load the kernels, in one thread: threads do not survive a fork."""
    rows = np.random.default_rng(0).normal(size=(300, 2))
    for kind in ("expected", "size", "depth"):
        forest = MondrianForest(8, max_samples=64, n_jobs=1).build(rows)
        forest.score(rows, kind)
        forest.explain(rows[:2], kind)
        forest.rescore_without_copies(kind)
    forest.expected_values(rows[:2])
    from_bytes(to_bytes(forest))
    for preset in ("practice", "paper"):
        detector = StreamDetector(2, preset=preset, window=64, n_trees=8, max_samples=16, warm_up=16, n_jobs=1)
        detector.process_many(rows)
        detector.process(rows[0])
        detector.explain(rows[0])
    series = StreamDetector(1, preset="series", window=64, n_trees=8, warm_up=16, n_jobs=1)
    series.process_many(rows[:, :1], np.arange(300.0))
    Fleet(1, window=32, n_trees=4, n_jobs=1).process_many(["a", "b", "c"] * 100, rows[:, :1])


def serve(control):
    """Fork for each message; in a fork, return when its streams and arguments are in place."""
    while True:
        message, streams, _, _ = socket.recv_fds(control, MAX_MESSAGE, 3)
        if not message:
            sys.exit(0)
        process = os.fork()
        if process == 0:
            break
        for stream in streams:
            os.close(stream)
        _, status = os.waitpid(process, 0)
        control.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    control.close()
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    folder, *arguments = json.loads(message)
    os.chdir(folder)
    sys.argv = ["imondrian", *arguments]


if __name__ == "__main__":
    warm_up()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    main()
