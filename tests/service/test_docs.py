"""The examples of docs/service.md run as they stand, but for the port."""

import json
import re
import subprocess
from pathlib import Path

from imondrian.service.settings import Keeping, Limits

DOCUMENT = Path(__file__).parents[2].joinpath("docs", "service.md").read_text()
ADDRESS = "http://127.0.0.1:8765"


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", DOCUMENT, re.DOTALL)


def test_the_commands_and_the_client(service, capsys):
    commands = next(block for block in blocks("sh") if "curl" in block).replace(ADDRESS, service.address)
    shown = re.search(r"^# (\{.*?\}), \.\.\.\]\}$", commands, re.MULTILINE)[1]
    said = subprocess.run(["bash", "-euc", commands], capture_output=True, text=True, timeout=60, check=True).stdout
    assert f"{shown}, " in said
    (code,) = blocks("py")
    exec(compile(code.replace(ADDRESS, service.address), "docs/service.md", "exec"), {})  # noqa: S102
    assert "temperature" in capsys.readouterr().out
    _, _, content = service.ask("GET", "/detectors/pumps")
    assert json.loads(content)["n_seen"] == 4


def test_every_route_is_in_the_table(service):
    _, _, content = service.ask("GET", "/openapi.json")
    for path, operations in json.loads(content)["paths"].items():
        for method in operations:
            assert re.search(rf"`[^|]*{method.upper()}[^|]*{re.escape(path)}`", DOCUMENT), (method, path)


def test_limits_are_those_of_the_code():
    limits, keeping = Limits(), Keeping()
    for figure in (
        f"{limits.body_bytes // 2**20} MiB a body",
        f"{limits.points_per_request:,} points a request ({limits.explained_points:,} to explain,",
        f"{limits.name_length} characters a name",
        f"{limits.features:,} features, {limits.detectors}",
        f"{limits.waiting_points:,} points in {limits.waiting_requests:,}",
        f"latest {keeping.history:,} rows",
        f"last {keeping.answers:,} answers",
        f"after {keeping.points_between_snapshots:,} points or {keeping.bytes_between_snapshots // 2**20} MB",
        f"({limits.model_bytes // 2**20} MiB a model)",
    ):
        assert figure in " ".join(DOCUMENT.split()), figure
