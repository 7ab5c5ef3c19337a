"""The public names of `imondrian`, and their types."""

import inspect
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

import imondrian

PROGRAM = """
from pathlib import Path
from typing import assert_type

import numpy as np

from imondrian import (
    Drift,
    Fleet,
    IsolationMondrianForest,
    MondrianForest,
    Result,
    Results,
    Shingle,
    StreamDetector,
    StreamingThreshold,
    load,
    save,
)

X = np.zeros((20, 2))
forest = MondrianForest(10, max_samples=8, scale="std").build(X).extend(X)
assert_type(forest, MondrianForest)
forest.score(X, kind="size")
forest.score_one(X[0], "expected")

model = IsolationMondrianForest(kind="size", preset="paper", scale=[1.0, 2.0], contamination="kmeans", max_samples=0.5)
assert_type(model.fit(X), IsolationMondrianForest)
assert_type(model.partial_fit(X), IsolationMondrianForest)
model.predict(X)

detector = StreamDetector(2, n_trees=5, kind="depth", scale=np.ones(2), threshold=0.01, on_error="skip")
assert_type(detector.process(X[0]), Result)
assert_type(detector.process_many(X), Results)
assert_type(detector.drifts, tuple[Drift, ...])

threshold = StreamingThreshold("kmeans", half_life=10)
threshold.update(0.5)
assert_type(threshold.threshold, float)
Shingle(3).points(X[:, :1])

save(detector, Path("model.imf"))
loaded = load("model.imf")
assert_type(loaded, MondrianForest | IsolationMondrianForest | StreamDetector | Fleet)
if isinstance(loaded, StreamDetector):
    loaded.process(X[0])
"""
MISTAKES = [
    'forest.score(X, kind="typo")',
    'MondrianForest(scale="typo")',
    "MondrianForest(10, 256)",
    'IsolationMondrianForest(kind="typo")',
    'IsolationMondrianForest(preset="typo")',
    'IsolationMondrianForest(contamination=["typo"])',  # strings such as "top 5%" are checked when the model is fitted
    'StreamDetector(2, kind="typo")',
    'StreamDetector(2, scale="typo")',
    'StreamDetector(2, threshold=["typo"])',
    'StreamDetector(2, on_error="typo")',
    'StreamDetector(2, preset="typo")',
    "StreamDetector(2, n_estimators=5)",
    'StreamingThreshold(["typo"])',
    "loaded.process(X[0])",
]


def test_dir_shows_only_public_names():
    assert [name for name in dir(imondrian) if not name.startswith("__")] == sorted(imondrian.__all__)
    assert {"Result", "Results", "Drift", "Shingle", "StreamingThreshold"} <= set(imondrian.__all__)
    for name in imondrian.__all__:
        assert getattr(imondrian, name).__name__ == name
    assert [name for name in dir(imondrian) if not name.startswith("__")] == sorted(imondrian.__all__)  # now all loaded
    with pytest.raises(AttributeError, match="no attribute 'model'"):
        _ = imondrian.model


def test_arguments_of_a_forest_after_the_number_of_trees_are_keyword_only():
    first, second, *others = inspect.signature(imondrian.MondrianForest).parameters.values()
    assert first.name == "n_trees"
    assert all(each.kind is inspect.Parameter.KEYWORD_ONLY for each in (second, *others))


def test_the_package_is_marked_as_typed():
    assert files("imondrian").joinpath("py.typed").is_file()


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """Return a function that type-checks a program like a user and returns the lines with errors and the output."""
    folder = tmp_path_factory.mktemp("typed")
    source = Path(imondrian.__file__).parents[1]
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--follow-imports", "silent"]
    environment = {**os.environ, "MYPYPATH": str(source)}

    def check(program):
        folder.joinpath("program.py").write_text(program)
        done = subprocess.run(
            [*command, "--cache-dir", str(folder / "cache"), "program.py"],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line}, done.stdout

    return check


def test_a_correct_program_passes_type_checking(mypy):
    errors, output = mypy(PROGRAM)
    assert errors == set(), output


def test_type_checking_finds_every_mistake(mypy):
    n_before = PROGRAM.count("\n")
    errors, output = mypy(PROGRAM + "\n".join(MISTAKES) + "\n")
    found = [MISTAKES[line - n_before - 1] for line in sorted(errors)]
    assert found == MISTAKES, output
