"""Install the peers one by one: one that cannot be installed here does not keep the others away.

Usage: python benchmarks/install.py, with the Python that is to run the benchmark. The list is the extra `bench`.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def main() -> None:
    """Install what the extra names, and say what cannot be."""
    extras = tomllib.loads(PROJECT.read_text("utf-8"))["project"]["optional-dependencies"]
    for requirement in extras["bench"]:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
        if subprocess.run(command, check=False).returncode != 0:
            print(f"{requirement} cannot be installed here; the benchmark runs without it, and says so.")


if __name__ == "__main__":
    main()
