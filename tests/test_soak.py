"""A short soak test: `make soak` runs ten times as many points."""

import subprocess
import sys
from pathlib import Path

import pytest
from numba import config


@pytest.mark.compiled
@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="hundreds of thousands of points need compiled kernels")
def test_200000_points_leave_memory_and_trees_as_they_should_be():
    script = Path(__file__).parent.parent / "benchmarks" / "soak.py"
    finished = subprocess.run([sys.executable, str(script), "200000"], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "invalid trees: none" in finished.stdout
