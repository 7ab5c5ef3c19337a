"""The examples of docs/service.md run unchanged, except for the port."""

import json
import math
import re
import subprocess
from pathlib import Path

from imondrian.service.changes.keyed_rows import MAX_KEY_LENGTH
from imondrian.service.limits import KIB, MIB, REPLY_SHARE, ConnectionLimits, Limits, Retention

DOCUMENT = Path(__file__).parents[2].joinpath("docs", "service.md").read_text()
ADDRESS = "http://127.0.0.1:8765"


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", DOCUMENT, re.DOTALL)


def test_the_commands_and_the_client_example_run(service, capsys):
    commands = next(block for block in blocks("sh") if "curl" in block).replace(ADDRESS, service.address)
    example = re.search(r"^# (\{.*?\}), \.\.\.\]\}$", commands, re.MULTILINE)[1]
    output = subprocess.run(["bash", "-euc", commands], capture_output=True, text=True, timeout=60, check=True).stdout
    assert f"{example}, " in output
    (code,) = blocks("py")
    exec(compile(code.replace(ADDRESS, service.address), "docs/service.md", "exec"), {})  # noqa: S102
    assert "temperature" in capsys.readouterr().out
    _, _, content = service.request("GET", "/detectors/pumps")
    assert json.loads(content)["n_seen"] == 4


def test_the_commands_with_categories_run(service):
    (commands,) = [block for block in blocks("sh") if "categorical" in block]
    shell = ["bash", "-euc", commands.replace(ADDRESS, service.address)]
    output = subprocess.run(shell, capture_output=True, text=True, timeout=60, check=True).stdout
    reasons = json.loads(output[output.index('{"explanations"') :])["explanations"][0]["explanation"]
    reason = next(reason for reason in reasons if reason["feature"] == "country")
    start, text = re.search(r'^# (\{.*), "text": "(.*) \.\.\.", \.\.\.\}$', commands, re.MULTILINE).groups()
    shown = json.loads(start + "}")
    assert shown == {name: reason[name] for name in shown}
    assert reason["text"].startswith(text)


def test_the_commands_with_a_time_series_run(service):
    (commands,) = [block for block in blocks("sh") if "series" in block]
    shell = ["bash", "-euc", commands.replace(ADDRESS, service.address)]
    output = subprocess.run(shell, capture_output=True, text=True, timeout=60, check=True).stdout
    found = json.loads(output[output.rindex('{"name"') :])
    shown = json.loads("{" + re.search(r"^# (.*)$", commands, re.MULTILINE)[1] + "}")
    assert shown == {"times": found["times"]}
    assert found["n_seen"] == 3


def test_every_route_is_in_the_table(service):
    _, _, content = service.request("GET", "/openapi.json")
    for path, operations in json.loads(content)["paths"].items():
        for method in operations:
            assert re.search(rf"`[^|]*{method.upper()}[^|]*{re.escape(path)}`", DOCUMENT), (method, path)


def test_documented_limits_match_the_code():
    limits, retention, connection_limits = Limits(), Retention(), ConnectionLimits()
    for figure in (
        (
            f"| body | {limits.body_bytes // MIB} MiB; a model {limits.model_bytes // MIB} MiB; a configuration"
            f" {limits.configuration_bytes // MIB} MiB |"
        ),
        f"or no token | {limits.unused_body_bytes // KIB} KiB |",
        (
            f"| points | {limits.points_per_request:,}, or fewer if points x trees x values of a point would exceed"
            f" 10^{math.log10(limits.values_per_request):.0f}; {limits.explained_points:,} to explain,"
            f" with {limits.explained_values:,} values in total (with a shingle, including those of its earlier rows),"
            f" or fewer if the names of the features would take more than {limits.explained_name_bytes // MIB} MiB"
            " for all these points |"
        ),
        f"| name | {limits.name_length} characters",
        f"| features | {limits.features:,}, with names of {limits.feature_length} characters |",
        f"| category | {limits.category_length} characters |",
        f"at most {retention.history_values:,} values, and {retention.history_label_bytes // MIB} MiB of categories",
        (
            f"| detectors | {limits.detectors:,}, of {limits.detector_bytes // MIB} MiB each;"
            f" {limits.total_bytes // 2**30} GiB together (`--max-memory`), including very long names"
        ),
        f"| keys | {limits.keys:,} of a detector, of {MAX_KEY_LENGTH} characters; {limits.keys_per_read:,} in a ",
        f"| memory for requests | {limits.memory_bytes // 2**30} GiB together",
        f"| {limits.parsed_at_once}; {limits.copies_at_once} ({limits.waiting_for_slot} more of each may wait",
        f"| connections | {connection_limits.connections:,} |",
        f"| URL | {connection_limits.url_bytes // KIB} KiB | 414 |",
        f"| {connection_limits.head_bytes // KIB} KiB, {connection_limits.headers} headers | 431 |",
        f"on the same connection | {connection_limits.pipelined} |",
        f"| {connection_limits.first_seconds:.0f} s; {connection_limits.idle_seconds:.0f} s | closed |",
        f"to its last | {connection_limits.head_seconds:.0f} s | 408 |",
        f"| {connection_limits.body_seconds:.0f} s; {connection_limits.body_rate // KIB} KiB a second | 408 |",
        f"of a large one | {connection_limits.response_seconds:.0f} s |",
        f"made at once | {limits.large_responses_at_once} ({limits.waiting_for_slot} more may wait",
        f"when the service ends | {retention.shutdown_seconds:.0f} s;",
        f"to the end | {connection_limits.grace_seconds} s",
        f"{limits.waiting_points:,} points in {limits.waiting_requests:,}",
        f"latest {retention.history:,} rows",
        f"last {retention.replies:,} replies, or fewer if they exceed {retention.reply_bytes // MIB} MiB",
        f"an eighth of `--max-memory` ({limits.total_bytes // REPLY_SHARE // MIB} MiB by default), or",
        f"or {retention.reply_bytes // MIB} MiB if that is more",
        f"after {retention.points_between_snapshots:,} points, {retention.bytes_between_snapshots // 2**20} MiB",
        f"or {retention.requests_between_snapshots:,} requests that learn no points",
    ):
        assert figure in " ".join(DOCUMENT.split()), figure
