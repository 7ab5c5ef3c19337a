"""A sheet of a workbook is read like CSV: titles, header, dates as text, duplicate names."""

import io
import zipfile
from xml.sax.saxutils import escape

import pytest

from imondrian.base.errors import InvalidInputError
from imondrian.tables.table_reader import Table, TextLayout

TYPES = "application/vnd.openxmlformats-officedocument.spreadsheetml"
MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def cell(value):
    if value is None:
        return "<c/>"
    if isinstance(value, bool):
        return f'<c t="b"><v>{int(value)}</v></c>'
    if isinstance(value, str):
        return f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>'
    return f"<c><v>{value!r}</v></c>"


def workbook(sheets):
    """Return the bytes of a workbook: a minimal one, so that no other package is needed to write it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        names = list(sheets)
        parts = "".join(
            f'<Override PartName="/xl/worksheets/sheet{i}.xml" ContentType="{TYPES}.worksheet+xml"/>'
            for i in range(len(names))
        )
        archive.writestr(
            "[Content_Types].xml",
            '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
            '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/xl/workbook.xml" ContentType="{TYPES}.sheet.main+xml"/>{parts}</Types>',
        )
        relations = '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        archive.writestr(
            "_rels/.rels",
            f'{relations}<Relationship Id="r" Type="{RELATIONS}/officeDocument" Target="xl/workbook.xml"/>'
            "</Relationships>",
        )
        listed = "".join(f'<sheet name="{name}" sheetId="{i + 1}" r:id="r{i}"/>' for i, name in enumerate(names))
        archive.writestr(
            "xl/workbook.xml", f'<workbook {MAIN} xmlns:r="{RELATIONS}"><sheets>{listed}</sheets></workbook>'
        )
        targets = "".join(
            f'<Relationship Id="r{i}" Type="{RELATIONS}/worksheet" Target="worksheets/sheet{i}.xml"/>'
            for i in range(len(names))
        )
        archive.writestr("xl/_rels/workbook.xml.rels", f"{relations}{targets}</Relationships>")
        for i, rows in enumerate(sheets.values()):
            data = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
            archive.writestr(
                f"xl/worksheets/sheet{i}.xml", f"<worksheet {MAIN}><sheetData>{data}</sheetData></worksheet>"
            )
    return file.getvalue()


ORDERS = [
    ["Orders 2024", None, None, None],
    [None, None, None, None],
    ["id", "amount", "paid", "tip"],
    ["O-1", 0.1, True, 3],
    ["O-2", 1234567.25, False, None],
]


def read(folder, sheets, name="t.xlsx", **layout):
    pytest.importorskip("fastexcel")
    path = folder / name
    path.write_bytes(workbook(sheets))
    table = Table(str(path), layout=TextLayout(**layout))
    return table.read_all(), table.facts


def test_a_sheet_is_read_with_titles_and_types_as_text(tmp_path):
    frame, facts = read(tmp_path, {"Orders": ORDERS})
    assert frame.columns == ["id", "amount", "paid", "tip"]
    assert frame.rows() == [("O-1", "0.1", "true", "3"), ("O-2", "1234567.25", "false", None)]
    assert facts.notes == ["skipped 1 title line before the header"]


def test_a_workbook_is_recognised_by_content(tmp_path):
    assert read(tmp_path, {"Orders": ORDERS}, "t.csv")[0].height == 2


def test_a_sheet_can_be_chosen(tmp_path):
    sheets = {"Notes": [["a"], ["b"]], "Orders": ORDERS}
    frame, facts = read(tmp_path, sheets)
    assert frame.columns == ["a"]
    assert facts.notes == ["the sheet 'Notes' was read (--sheet chooses among 'Notes', 'Orders')"]
    assert read(tmp_path, sheets, sheet="Orders")[0].height == 2
    with pytest.raises(InvalidInputError, match="has no sheet 'Other'; the sheets are 'Notes', 'Orders'"):
        read(tmp_path, sheets, sheet="Other")


def test_layout_options_hold_for_sheets(tmp_path):
    assert read(tmp_path, {"s": ORDERS}, skip_lines=1)[0].columns == ["id", "amount", "paid", "tip"]
    frame = read(tmp_path, {"s": [[1, 2], [3, 4]]}, has_header=False)[0]
    assert frame.columns == ["column_1", "column_2"]
    assert frame.height == 2
    with pytest.raises(InvalidInputError, match="has no rows"):
        read(tmp_path, {"s": [["a", "b"]]})
    with pytest.raises(InvalidInputError, match="has no rows"):
        read(tmp_path, {"s": []})


def test_numbers_keep_all_their_digits(tmp_path):
    """As texts, the reader rounds them to 9 decimals."""
    numbers = [1e-12, -1e-300, 1 / 3, 0.1 + 0.2, 123456789.12345678, 1.5e300, 5.0, 2.0**53, 0.25, 0.0]
    rows = [["x", "code", "flag"], *([number, "007" if i % 2 else "1.50", True] for i, number in enumerate(numbers))]
    (tmp_path / "t.xlsx").write_bytes(workbook({"S": rows}))
    frame = Table(str(tmp_path / "t.xlsx")).read_all()
    assert frame["x"].cast(float).to_list() == numbers
    assert frame["code"].to_list() == ["1.50", "007"] * 5
    assert set(frame["flag"].to_list()) == {"true"}


@pytest.mark.parametrize("n_sheets", [3, 30])
def test_the_list_of_sheets_in_messages_is_short(tmp_path, n_sheets):
    names = [f"{i:02d}{'x' * 150}" for i in range(n_sheets)]
    with pytest.raises(InvalidInputError, match="has no sheet 'other'; the sheets are '00xxx") as error:
        read(tmp_path, {name: [["a"], [1]] for name in names}, sheet="other")
    assert str(error.value).endswith(", ....") == (n_sheets > 20)
    assert len(str(error.value)) < 2_500


def test_without_the_path_of_the_interpreter_there_is_a_clear_error(tmp_path, monkeypatch):
    (tmp_path / "t.xlsx").write_bytes(workbook({"S": [["a"], [1]]}))
    monkeypatch.setattr("sys.executable", None)
    with pytest.raises(InvalidInputError, match="the path of the interpreter is unknown"):
        Table(str(tmp_path / "t.xlsx")).read_all()


@pytest.mark.parametrize("program", ["/bin/true", "/bin/echo", "/does/not/exist"])
def test_a_substitute_for_the_interpreter_is_a_clear_error(tmp_path, monkeypatch, program):
    (tmp_path / "t.xlsx").write_bytes(workbook({"S": [["a"], [1]]}))
    monkeypatch.setattr("sys.executable", program)
    with pytest.raises(InvalidInputError, match=r"t.xlsx: .* cannot be (loaded|started)"):
        Table(str(tmp_path / "t.xlsx")).read_all()


def test_variables_of_python_do_not_disturb_the_process(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong module')")
    (tmp_path / "t.xlsx").write_bytes(workbook({"S": [["a"], [1]]}))
    for name, value in {"PYTHONPATH": tmp_path, "PYTHONIOENCODING": "utf-16", "PYTHONINSPECT": "1"}.items():
        monkeypatch.setenv(name, str(value))
    assert Table(str(tmp_path / "t.xlsx")).read_all().rows() == [("1",)]
