"""Install the peers one by one, so that a peer that cannot be installed does not affect the others.

Usage: python benchmarks/install.py, with the Python that runs the benchmark. The extra `bench` lists the peers.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def main() -> None:
    """Install the packages of the extra, and print those that cannot be installed."""
    extras = tomllib.loads(PROJECT.read_text("utf-8"))["project"]["optional-dependencies"]
    for requirement in extras["bench"]:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
        if subprocess.run(command, check=False).returncode != 0:
            print(f"{requirement} cannot be installed; the benchmark runs without it.")


if __name__ == "__main__":
    main()
