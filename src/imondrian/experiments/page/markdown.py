"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table; the first column is text, the others are figures.

    Examples
    --------
    >>> print(table(["", "a"], [["x", "1"]]))
    | | a |
    |---|---:|
    | x | 1 |
    """
    lines = [_line(head), f"|---|{'---:|' * (len(head) - 1)}", *map(_line, rows)]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)
