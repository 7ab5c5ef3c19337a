"""Every example runs to its end without the network, finds what it says, and is explained in docs/examples.md."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
FINDINGS = {  # a line that each script must print
    "transactions.py": r"frauds among the 30 highest scores:  2\d",
    "machine_sensors.py": r"day 4 00:4\d  incident \d opened, .* temperature = .*high",
    "fleet_of_hosts.py": r"host201 .*errors = 3\d",
    "compare_isolation_forest.py": r"two moons .* 0\.7\d\d +0\.8\d\d",
}
NOTEBOOKS = sorted(path.name for path in EXAMPLES.glob("*.ipynb"))
NO_NETWORK = """
import socket

def refuse(*_):
    raise OSError("An example must not use the network.")

socket.socket.connect = socket.getaddrinfo = refuse
"""


@pytest.mark.compiled
@pytest.mark.parametrize("name", FINDINGS)
def test_a_script_finds_what_it_says(name, tmp_path):
    program = f"{NO_NETWORK}\nimport runpy\nrunpy.run_path({str(EXAMPLES / name)!r}, run_name='__main__')"
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(FINDINGS[name], done.stdout), done.stdout


@pytest.mark.compiled
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name, tmp_path):
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "commit notebooks without outputs"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(NO_NETWORK))
    copy = tmp_path / name
    nbformat.write(notebook, copy)
    program = (
        "import nbformat, sys; from nbclient import NotebookClient; "
        "notebook = nbformat.read(sys.argv[1], 4); NotebookClient(notebook, kernel_name='python3').execute(); "
        "nbformat.write(notebook, sys.argv[1])"
    )
    environment = {**os.environ, "IPYTHONDIR": str(tmp_path), "JUPYTER_PREFER_ENV_PATH": "1"}
    command = [sys.executable, "-c", program, str(copy)]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    outputs = [output for cell in nbformat.read(copy, as_version=4).cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)


def test_there_are_four_scripts_and_two_notebooks_each_explained():
    text = (ROOT / "docs" / "examples.md").read_text()
    assert len(FINDINGS) == 4
    assert len(NOTEBOOKS) == 2
    for name in (*FINDINGS, *NOTEBOOKS):
        assert f"(../examples/{name})" in text
