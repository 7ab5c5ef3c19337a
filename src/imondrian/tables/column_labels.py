"""Unique names for the columns of a table whose header may have duplicates and blanks."""


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
    taken, latest_numbers = set(candidates), dict[str, int]()
    names = []
    for name in candidates:
        if name in latest_numbers:
            number = _next_free(name, latest_numbers[name] + 1, taken)
            names.append(f"{name} ({number})")
        else:
            number = 1
            names.append(name)
        latest_numbers[name] = number
        taken.add(names[-1])
    return names


def labels_that_differ(names: list[str], labels: list[str]) -> dict[str, str]:
    """Return the label of each column whose name is not its label."""
    return {name: label for name, label in zip(names, labels, strict=True) if name != label}


def _next_free(name: str, number: int, taken: set[str]) -> int:
    """Return the smallest number, from `number` on, such that the name followed by it is not taken."""
    while f"{name} ({number})" in taken:
        number += 1
    return number
