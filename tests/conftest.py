"""Settings of all tests."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from numba import config

settings.register_profile(
    "imondrian",
    deadline=None,  # machines are shared: no test asserts a time
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
