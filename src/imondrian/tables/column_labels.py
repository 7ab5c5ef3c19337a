"""Unique names for the columns of a table whose header may have duplicates and blanks."""

from collections import Counter


def unique_names(labels: list[str]) -> list[str]:
    """Return a name for each column: its label, with a number if an earlier column has the same label.

    Columns without a label are named by their position; if there is only one, its name is empty.

    Examples
    --------
    >>> unique_names(["a", "b", "a", "a (2)", "", ""])
    ['a', 'b', 'a (3)', 'a (2)', 'column_5', 'column_6']
    """
    n_blank = labels.count("")
    candidates = [label or (f"column_{j + 1}" if n_blank > 1 else "") for j, label in enumerate(labels)]
    taken, counts = set(candidates), Counter[str]()
    names = []
    for name in candidates:
        counts[name] += 1
        names.append(name if counts[name] == 1 else _next_free(name, taken))
        taken.add(names[-1])
    return names


def labels_that_differ(names: list[str], labels: list[str]) -> dict[str, str]:
    """Return the label of each column whose name is not its label."""
    return {name: label for name, label in zip(names, labels, strict=True) if name != label}


def _next_free(name: str, taken: set[str]) -> str:
    number = 2
    while f"{name} ({number})" in taken:
        number += 1
    return f"{name} ({number})"
