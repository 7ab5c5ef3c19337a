"""The code names in the documents exist, and the table from the paper to the code is complete."""

import re
from importlib import import_module
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

from imondrian import MondrianForest
from tests.reference_tree import c

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "imondrian"
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "ARCHITECTURE.md", *ROOT.glob("docs/**/*.md")])
IN_THE_PAPER = [*(f"Algorithm {i}" for i in range(1, 6)), *(f"Eq. {i}" for i in range(1, 5))]


# -- names -------------------------------------------------------------------------------------------------------------


def missing(text):
    """Return the code names in a document, outside its examples, that do not exist."""
    inline = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return [name for name in (" ".join(name.split()) for name in inline) if not exists(name)]


def exists(name):
    """Return True if `path.py`, `path.py: name`, `Class.member` or `function()` exists, and for all other text."""
    if found := re.fullmatch(r"([\w/.-]+\.py)(?:: ([\w.]+))?", name):
        files = [folder / found[1] for folder in (ROOT, PACKAGE) if (folder / found[1]).is_file()]
        return any(found[2] is None or is_defined(file, found[2]) for file in files)
    if found := re.fullmatch(r"[A-Z][a-z]\w*\.[a-z_]\w*", name):
        return any(is_defined(file, found[0]) for file in PACKAGE.rglob("*.py"))
    if found := re.fullmatch(r"([a-z_]\w*)\(\)", name):
        return any(re.search(rf"^ *def {found[1]}\b", file.read_text(), re.MULTILINE) for file in PACKAGE.rglob("*.py"))
    return True


def is_defined(file, name):
    """Return True if the file itself defines the name; a member is looked up in the imported module."""
    text, (head, _, member) = file.read_text(), name.partition(".")
    if not re.search(rf"^(?:(?:def|class) )?{head}\b", text, re.MULTILINE):
        return False
    if PACKAGE not in file.parents:
        return not member
    try:
        attrgetter(name)(import_module(".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)))
    except AttributeError:
        return member != "" and re.search(rf"\bself\.{member}\b", text) is not None
    return True


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_names_in_documents_exist(document):
    assert missing(document.read_text()) == []


@pytest.mark.parametrize(
    "made_up",
    [
        "engine/extend.py: shorten",
        "engine/extend.py: overhang",  # imported there, but defined elsewhere
        "engine/nowhere.py: extend",
        "engine/nowhere.py",
        "scores.py: ScoringCache.median",
        "MondrianForest.guess",
        "NoSuchForest.build",
        "no_such_function()",
        "tests/test_nothing.py",
        "tests/engine/test_oracle.py: test_nothing",
    ],
)
def test_a_name_that_does_not_exist_is_found(made_up):
    assert missing(f"There is `MondrianForest.build`,\nand there is `{made_up}`.") == [made_up]


# -- the paper ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", IN_THE_PAPER)
def test_every_algorithm_and_equation_has_a_row_with_its_function_and_its_test(what):
    text = (ROOT / "docs" / "paper-to-code.md").read_text()
    (row,) = re.findall(rf"^\| {what}\b.*", text, re.MULTILINE)
    _, _, function, _, test, _ = row.split("|")
    assert re.fullmatch(r" `[\w/]+\.py: [\w.]+` ", function)
    assert re.fullmatch(r" `tests/[\w/]+\.py` ", test)


@pytest.mark.parametrize("n_held", [50, 16])
def test_the_score_agrees_with_equations_1_to_4(n_held):
    points = np.random.default_rng(0).normal(size=(50, 3))
    points[1] = points[0]
    forest = MondrianForest(n_trees=7, max_samples=n_held).build(points)
    rows = np.vstack([points, 3.0 * points])
    lengths = [[path_length(tree, x) for x in rows] for tree in forest.trees()]
    np.testing.assert_allclose(forest.score(rows), 2.0 ** (-np.mean(lengths, axis=0) / c(n_held)), rtol=1e-12)


def path_length(tree, x):
    node = 0
    while tree.left[node] >= 0:
        goes_left = x[tree.split_feature[node]] < tree.split_value[node]
        node = tree.left[node] if goes_left else tree.right[node]
    return tree.depth[node] + c(int(tree.population[node]))
