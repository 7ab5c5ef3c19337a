"""A program that starts services by forking: a fork has already imported and compiled everything.

Reads lines "port folder" or "port folder receiver", and prints the id of the process that serves there.
"""

import os
import sys
from pathlib import Path

import numpy as np
import uvicorn

from imondrian.service.changes.configuration import DEFAULTS, new_detector
from imondrian.service.delivery.receivers import receivers_of
from imondrian.service.detectors.registry import Registry
from imondrian.service.http.asgi import create_app
from imondrian.service.limits import Retention
from tests.service.keyed import keyed_rows, plain_fleet
from tests.service.serving import SMALL

OFTEN = Retention(points_between_snapshots=150, retry_seconds=0.05, longest_retry_seconds=0.2)


def warm_up():
    detector = new_detector({**DEFAULTS, **SMALL, "features": ["x", "y"]})
    detector.process_many(np.random.default_rng(0).normal(size=(300, 2)))
    detector.score(np.zeros((1, 2)))
    series = new_detector({**DEFAULTS, **SMALL, "features": ["load"], "preset": "series"})
    series.process_many(np.zeros((300, 1)), np.arange(300.0))
    plain_fleet().process_many(*keyed_rows(n_rows=300))


def serve(port, folder, *receivers):
    app = create_app(Registry(Path(folder), retention=OFTEN, receivers=receivers_of(receivers)))
    uvicorn.run(app, port=port, log_level="error", access_log=False)
    os._exit(0)


def main():
    warm_up()
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        port, folder, *receivers = line.split()
        process = os.fork()
        if process == 0:
            serve(int(port), folder, *receivers)
        print(process, flush=True)  # noqa: T201
        os.waitpid(process, 0)
        print("ended", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
