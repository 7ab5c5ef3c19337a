"""Settings and fixtures of all tests."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from numba import config

if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup, the tests and the commands they start would ignore it

settings.register_profile(
    "imondrian",
    deadline=None,  # run times vary on shared machines
    derandomize=True,
    max_examples=30 if config.DISABLE_JIT else 100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("imondrian")

if config.DISABLE_JIT:
    np.seterr(over="ignore")  # 64-bit words wrap, as compiled ones do


@pytest.fixture(scope="session")
def data_folder():
    folder = os.environ.get("IMONDRIAN_DATA")
    if folder is None:
        pytest.skip("IMONDRIAN_DATA does not name a folder of data sets")
    return Path(folder)
