"""Title lines, the header and the separator are found where there is no doubt."""

import pytest

from imondrian.base.errors import InvalidInputError
from imondrian.tables.table_reader import Table, TextLayout


def read(folder, content, **layout):
    path = folder / "table.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    table = Table(str(path), layout=TextLayout(**layout))
    return table.read_all(), table.facts


@pytest.mark.parametrize(
    ("content", "columns", "n_titles"),
    [
        ("Umsatz 2024\n\nName;Betrag\nA;1,5\nB;2,5\n", ["Name", "Betrag"], 1),
        ("Umsatz 2024;;\nStand: heute;;\nName;Ort;Betrag\nA;x;1\nB;y;2\n", ["Name", "Ort", "Betrag"], 2),
        ("Report, created 2024\na;b;c\n1;2;3\n4;5;6\n", ["a", "b", "c"], 1),
        ('"Report, ""all"""\na,b,c\n1,2,3\n4,5,6\n', ["a", "b", "c"], 1),
        ("a;b\n1,5;2,5\n3,5;4,5\n", ["a", "b"], 0),
        ("a,b\nx;y,z\nx;y,z\n", ["a", "b"], 0),
        ("a\n1\n2\n", ["a"], 0),
        ("a,b\n1,2\n", ["a", "b"], 0),
        ("a,,c\n1,2,3\n4,5,6\n", ["a", "", "c"], 0),
        ("1,2\n3,4\n5,6\n", ["1", "2"], 0),
        ("title\na,a,,b\n1,2,3,4\n5,6,7,8\n", ["a", "a (2)", "", "b"], 1),
        ("title\n1,2\n3,4\n5,6\n", None, 0),  # no header: in doubt
    ],
)
def test_titles_and_headers_are_found(tmp_path, content, columns, n_titles):
    if columns is None:
        with pytest.raises(InvalidInputError, match="row 1 has 2 fields, but the header has 1"):
            read(tmp_path, content)
        return
    frame, facts = read(tmp_path, content)
    assert frame.columns == columns
    skipped = {1: "skipped 1 title line before the header", 2: "skipped 2 title lines before the header"}
    assert facts.notes == ([skipped[n_titles]] if n_titles else [])


def test_lines_to_skip_can_be_given(tmp_path):
    content = "x,y\nthis,that\na,b\n1,2\n3,4\n"
    frame, facts = read(tmp_path, content, skip_lines=2)
    assert frame.columns == ["a", "b"]
    assert facts.notes == []
    frame, _ = read(tmp_path, "title\na,b\n1,2\n3,4\n", skip_lines=1)
    assert frame.rows() == [("1", "2"), ("3", "4")]
    frame, _ = read(tmp_path, "title\n1,2\n3,4\n", skip_lines=1, has_header=False)
    assert frame.rows() == [("1", "2"), ("3", "4")]
    with pytest.raises(InvalidInputError, match="has no rows"):
        read(tmp_path, content, skip_lines=9)


def test_duplicate_and_blank_names_become_unique(tmp_path):
    frame, facts = read(tmp_path, 'a,"b ""x""",a,,\n1,2,3,4,5\n')
    assert frame.columns == ["a", 'b "x"', "a (2)", "column_4", "column_5"]
    assert facts.labels == {"a (2)": "a", "column_4": "", "column_5": ""}


def test_empty_fields_at_the_end_of_a_line_are_ignored(tmp_path):
    assert read(tmp_path, "a;b\n1;2;\n3;4;;\n")[0].rows() == [("1", "2"), ("3", "4")]
