"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], n_texts: int = 1) -> str:
    """Return a table; the first `n_texts` columns are text (left-aligned), the others numbers.

    Examples
    --------
    >>> print(table(["", "a"], [["x", "1"]]))
    | | a |
    |---|---:|
    | x | 1 |
    """
    rule = "|" + "---|" * n_texts + "---:|" * (len(head) - n_texts)
    lines = [_line(head), rule, *map(_line, rows)]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)
