"""Install a wheel or an sdist into a new environment, and try the library, the command line and the service there.

python packaging/smoke_test.py dist/imondrian-0.1.0-py3-none-any.whl ...
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LIBRARY = """
import importlib.metadata
import importlib.resources
import numpy as np
import imondrian
assert importlib.resources.files("imondrian").joinpath("py.typed").is_file()
assert importlib.metadata.version("imondrian") == imondrian.__version__
assert "site-packages" in imondrian.__file__, imondrian.__file__
X = np.random.default_rng(0).normal(size=(500, 3))
model = imondrian.IsolationMondrianForest(random_state=0).fit(X)
assert model.predict([[0.0, 0.0, 0.0], [0.0, 9.0, 0.0]]).tolist() == [1, -1]
imondrian.save(model, "model.imf")
assert (imondrian.load("model.imf").score_samples(X) == model.score_samples(X)).all()
print(imondrian.__version__)
"""
_SECONDS = 120.0  # time limit for the start of the service, and for each response


def main(distributions: list[str]) -> None:
    """Try each distribution in an environment of its own."""
    if not distributions:
        raise SystemExit(__doc__)
    for name in distributions:
        with tempfile.TemporaryDirectory(prefix="imondrian-smoke-") as folder:
            started = time.monotonic()
            try_distribution(Path(name).resolve(), Path(folder))
            print(f"{name}: library, command line and service work ({time.monotonic() - started:.0f} s)", flush=True)


def try_distribution(distribution: Path, folder: Path) -> None:
    """Install a distribution into a new environment in a folder outside the repository, and use it."""
    venv.create(folder / "venv", with_pip=True)
    binaries = folder / "venv" / ("Scripts" if os.name == "nt" else "bin")
    pip = [binaries / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, str(distribution)], folder)
    run([binaries / "python", "-c", _LIBRARY], folder)  # the library alone, without extras
    without_extras = run([binaries / "imondrian", "--version"], folder, expected=2)
    check('pip install "imondrian[cli]"' in without_extras.stderr, f"unexpected error: {without_extras.stderr}")
    run([*pip, f"{distribution}[serve]"], folder)
    try_command_line(binaries / "imondrian", folder)
    try_service(binaries / "imondrian", folder)


def try_command_line(imondrian: Path, folder: Path) -> None:
    """Find the one unusual row of a table, save the model, and score the table with it."""
    rows = [f"{i % 7},{(i * 5) % 11}" for i in range(300)]
    (folder / "data.csv").write_text("\n".join(["a,b", *rows, "90,-40"]) + "\n")
    run([imondrian, "--help"], folder)
    run([imondrian, "detect", "data.csv", "-o", "scored.csv", "--save", "table.imf", "--report", "report.html"], folder)
    last = (folder / "scored.csv").read_text().splitlines()[-1]
    check(last.startswith("90,-40,") and ",true," in last, f"the last row must be an anomaly, but is {last!r}.")
    check("<html" in (folder / "report.html").read_text().lower(), "report.html must be an HTML page.")
    run([imondrian, "score", "table.imf", "data.csv", "-o", "again.csv"], folder)
    watched = run([imondrian, "watch", "data.csv"], folder).stdout.splitlines()
    check(len(watched) == len(rows) + 1, f"watch must print {len(rows) + 1} rows, but printed {len(watched)}.")


def try_service(imondrian: Path, folder: Path) -> None:
    """Create a detector, post points, read the page, and make a backup."""
    with service(imondrian, folder) as address:
        request("PUT", f"{address}/detectors/pumps", {"features": ["x", "y"], "window": 64, "n_trees": 10})
        reply = request("POST", f"{address}/detectors/pumps/points", {"points": [[0.0, 1.0], [0.5, 1.5]]})
        check(len(json.loads(reply)["results"]) == 2, f"two results were expected, but the reply is {reply!r}.")
        check(b"<html" in request("GET", address).lower(), "the page must be HTML.")
        check(json.loads(request("GET", f"{address}/health"))["status"] == "ok", "the service must be healthy.")
        run([imondrian, "backup", "backup.db", "--url", address], folder)


@contextmanager
def service(imondrian: Path, folder: Path) -> Iterator[str]:
    """Run the service on a free port, and yield its address."""
    command = [str(imondrian), "serve", "--data", "detectors", "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, env=environment())
    try:
        yield address_of(process)
    finally:
        process.terminate()
        rest = process.communicate(timeout=60)[1]
    check(process.returncode == 0, f"the service ended with {process.returncode}: {rest}")


def address_of(process: "subprocess.Popen[str]") -> str:
    """Return the address that the service prints when it is ready."""
    deadline, lines = time.monotonic() + _SECONDS, []
    while time.monotonic() < deadline and (line := process.stderr.readline()):
        lines.append(line)
        if found := re.search(r"at (http://\S+)", line):
            return found[1]
    raise SystemExit(f"the service did not start: {''.join(lines)}")


def request(method: str, address: str, body: object = None) -> bytes:
    """Send a request, and return the body of the response."""
    content = None if body is None else json.dumps(body).encode()
    message = urllib.request.Request(address, content, method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(message, timeout=_SECONDS) as response:  # noqa: S310
            return response.read()
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{method} {address}: {error.code} {error.read()!r}") from None


def run(command: list[object], folder: Path, expected: int | None = 0) -> "subprocess.CompletedProcess[str]":
    """Run a command in a folder; stop with its output if its exit code is not the expected one."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, env=environment())
    if expected is not None and done.returncode != expected:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def environment() -> dict[str, str]:
    """Return the environment without variables that would change which imondrian runs, or how."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "IMONDRIAN_TOKEN", "NUMBA_CACHE_DIR")
    return {name: value for name, value in os.environ.items() if name not in hidden}


def check(condition: object, message: str) -> None:
    """Stop with a message unless a condition holds."""
    if not condition:
        raise SystemExit(message)


if __name__ == "__main__":
    main(sys.argv[1:])
