"""A small run of the benchmark: workloads keep their names and data, records are complete, missing peers are named."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from numba import config

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
COMPILED = [
    pytest.mark.compiled,
    pytest.mark.skipif(bool(config.DISABLE_JIT), reason="forests of a hundred trees need compiled kernels"),
]
PEERS = {
    "scikit-learn": "sklearn",
    "isotree": "isotree",
    "coniferest": "coniferest",
    "krcf": "krcf",
    "rrcf": "rrcf",
    "river": "river",
    "pyod": "pyod",
}
BROKEN, REASON = "isotree", "not for this machine"

# Results of different versions are compared by these names: none may ever change.
WORKLOADS = {
    "start_up": [
        "start-up: import, build, score one row",
        "first use: compile every kernel",
        "first use: compile every kernel, streams too",
    ],
    "fit": [
        "fit 100 x 256, n = 10000, d = 10",
        "fit 100 x 256, n = 100000, d = 10",
        "fit 100 x 256, n = 1000000, d = 10",
    ],
    "score": [
        "score 100000 rows, 100 x 256, d = 3",
        "score 100000 rows, 100 x 256, d = 10",
        "score 100000 rows, 100 x 256, d = 36",
        "score 100000 rows, 100 x 256, d = 77",
        "score 1000000 rows, 100 x 256, d = 3",
        "score 1000000 rows, 100 x 256, d = 10",
        "score 1000000 rows, 100 x 256, d = 36",
        "score 1000000 rows, 100 x 256, d = 77",
    ],
    "one_row": [
        "score one row: MondrianForest.score_one",
        "score one row: River's score_one on a dictionary",
        "score one row: scikit-learn's score_samples",
        "score one row: PyOD's decision_function",
    ],
    "boxes": [
        "score by expected, d = 10: one row",
        "score by expected, d = 10: blocks of 2000",
        "score by size, d = 10: one row",
        "score by size, d = 10: blocks of 2000",
        "explain, d = 10: one row",
        "explain, d = 10: blocks of 2000",
    ],
    "streams": [
        "stream, paper: process",
        "stream, paper: many",
        "stream, practice: process",
        "stream, practice: many",
    ],
    "fleet": [
        "fleet, 10000 keys, d = 1: blocks of 100000",
        "fleet, d = 1: memory a key",
        "fleet, d = 1: back from the store",
        "fleet, d = 1: back from the store, 99 %",
    ],
    "categories": [
        "categories, d = 10: score by depth",
        "categories, d = 10: score by expected",
        "categories, d = 10: score by size",
        "categories, d = 10: stream by depth",
        "categories, d = 10: stream by expected",
        "categories, d = 10: stream by size",
        "categories, d = 10: extend",
    ],
    "online": [
        "online, 95156 x 3, 100 trees: extend",
        "online, 95156 x 3, 100 trees: peak memory",
        "online, 95156 x 3, 100 trees: five stages with re-scoring",
        "online, SMTP, 100 trees: five stages with re-scoring",
        "online, 95156 x 3, 20 trees: a point at 1000",
        "online, 95156 x 3, 20 trees: a point at 95000",
        "online, 20 trees, d = 3: a point at 10000",
        "online, 20 trees, d = 3: a point at 100000",
        "online, 20 trees, d = 3: a point at 1000000",
        "online, 20 trees, d = 3: peak memory at 1000000",
        "online, 20 trees, d = 10: a point at 10000",
        "online, 20 trees, d = 10: a point at 100000",
        "online, 20 trees, d = 10: a point at 1000000",
        "online, 20 trees, d = 10: peak memory at 1000000",
    ],
    "files": [
        "save 100 x 256, d = 10",
        "load 100 x 256, d = 10",
        "size of the file of 100 x 256, d = 10",
        "save 100 x 256, d = 500",
        "load 100 x 256, d = 500",
        "size of the file of 100 x 256, d = 500",
    ],
    "memory": [
        "peak memory: fit 100 x 256 and score, 1000000 x 10",
        "peak memory: stream, 100 x 256 of 2048, d = 10",
    ],
    "threads": [
        "two threads: pure arithmetic",
        "two threads: fit 100 x 2000, d = 10",
        "two threads: score 100000 rows, 100 x 256, d = 10",
        "two threads: extend 2000 points, 100 trees, d = 10",
    ],
}
RUN = ["fit", "files", "threads", "online, 20 trees, d = 3: a point at 10000"]


def bench(*arguments, **environment):
    return subprocess.run(
        [sys.executable, str(BENCHMARKS / "run.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


def output_of(code):
    """Run Python code in the benchmark folder, and return the JSON that it prints."""
    command = [sys.executable, "-c", f"import json; {code}"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=BENCHMARKS).stdout)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """A quick run of some groups in which one peer is broken: its standard output and its results folder."""
    folder = tmp_path_factory.mktemp("benchmark")
    (folder / f"{BROKEN}.py").write_text(f"raise ImportError({REASON!r})")
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    finished = bench("--quick", "--results", str(folder / "results"), *RUN, PYTHONPATH=path)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout, folder / "results"


@pytest.fixture(scope="module")
def found(quick):
    return json.loads((quick[1] / "quick.json").read_text())


def test_workloads_keep_their_names():
    listed = bench("--list").stdout.splitlines()
    assert listed == [line for group, names in WORKLOADS.items() for line in (group, *(f"    {n}" for n in names))]


def test_workloads_keep_their_data():
    first_and_last = "[X[[0, -1]].tolist() for X in (normal_points(101, 2), smtp_like_points())]"
    normal, smtp_like = map(np.array, output_of(f"from workloads import *; print(json.dumps({first_and_last}))"))
    assert normal == pytest.approx(np.array([[0.63879815, -1.60558484], [1.59266691, 3.75972217]]))
    assert smtp_like == pytest.approx(
        np.array([[0.40747991, 6.68043726, 5.37721266], [-1.42794708, 7.07403583, 6.22315094]])
    )


def test_an_unknown_workload_is_an_error_that_lists_the_groups():
    finished = bench("fit", "fitt")
    assert finished.returncode == 2
    assert "there is no workload 'fitt'" in finished.stderr
    assert ", ".join(WORKLOADS) in finished.stderr


def test_targets_refer_to_existing_workloads_and_contestants():
    sides = output_of("from targets import TARGETS; print(json.dumps([s for t in TARGETS for s in t[1:3] if s]))")
    assert {workload for workload, _, _ in sides} <= {name for names in WORKLOADS.values() for name in names}
    assert {contestant for _, contestant, _ in sides} <= {"ours", "paper", "this machine", "5 categorical", *PEERS}
    assert {threads for _, _, threads in sides} == {1, 2}


class TestQuickRun:
    pytestmark = COMPILED

    def test_the_requested_workloads_are_measured_with_one_and_two_threads(self, found):
        grown = [name for name in WORKLOADS["online"] if "20 trees, d = 3" in name]
        requested = [*WORKLOADS["fit"], *WORKLOADS["files"], *WORKLOADS["threads"], *grown]
        assert list(dict.fromkeys(m["workload"] for m in found["measurements"])) == requested
        assert {m["threads"] for m in found["measurements"]} == {1, 2}
        assert found["unmeasured"] == {}

    def test_every_measurement_has_its_values_and_their_median(self, found):
        for m in found["measurements"]:
            assert min(m["values"]) > 0.0
            assert m["median"] == median(m["values"])

    def test_ratios_are_medians_divided_by_our_median(self, found):
        medians = {(m["workload"], m["contestant"], m["threads"]): m["median"] for m in found["measurements"]}
        ratios = {(r["workload"], r["contestant"], r["threads"]): r["ratio"] for r in found["ratios"]}
        others = {key for key in medians if key[1] not in ("ours", "this machine")}
        assert ratios.keys() == others
        assert any(contestant == "scikit-learn" for _, contestant, _ in ratios)
        for (workload, contestant, threads), ratio in ratios.items():
            ours = medians[workload, "ours", threads]
            assert ratio == pytest.approx(medians[workload, contestant, threads] / ours)

    def test_targets_of_measured_workloads_have_a_verdict(self, found):
        verdicts = {target["name"]: target["verdict"] for target in found["targets"]}
        large_fit, two_threads = WORKLOADS["fit"][-1], WORKLOADS["threads"][1]
        assert verdicts[f"{large_fit}: scikit-learn over ours"] in ("ok", "MISS")
        assert verdicts[f"{two_threads}: one thread over two"] in ("ok", "MISS")
        assert verdicts[f"{large_fit}: {BROKEN} over ours"] == "not measured"
        assert {target["workload"] for target in found["targets"]} <= {m["workload"] for m in found["measurements"]}

    def test_verdicts_follow_from_the_measured_values(self, found):
        for target in found["targets"]:
            if target["verdict"] != "not measured":
                relation, *_, bound = re.sub(" (s|ms|MB|GB)$", "", target["target"]).split()
                is_met = target["value"] >= float(bound) if relation == ">=" else target["value"] <= float(bound)
                assert target["verdict"] == ("ok" if is_met else "MISS"), target

    def test_missing_peers_are_named_with_the_reason(self, quick, found):
        missing = {line.removeprefix("peer ").partition(":")[0]: line for line in found["missing"]}
        absent = {peer for peer, module in PEERS.items() if find_spec(module) is None}
        assert missing.keys() == absent | {BROKEN}
        assert missing[BROKEN] == f"peer {BROKEN}: missing (ImportError: {REASON})"
        assert all(line in quick[0] for line in found["missing"])

    def test_the_output_says_that_the_run_is_quick_and_where_the_results_are(self, quick, found):
        printed, folder = quick
        assert found["run"].startswith("quick")
        assert found["run"] in printed
        assert str(folder / "quick.json") in printed
        assert not (folder / "latest.json").exists()

    def test_the_plot_is_written(self, quick):
        pytest.importorskip("matplotlib")
        assert (quick[1] / "scaling-quick.png").read_bytes().startswith(b"\x89PNG")
