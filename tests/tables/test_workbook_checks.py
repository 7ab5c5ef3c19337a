"""Sheets that span too many cells are refused before they are loaded; all others are read."""

import io
import struct
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian.base.errors import InvalidInputError
from imondrian.tables import ods_spans, workbook_checks, xlsx_spans
from imondrian.tables.table_reader import Table, TextLayout
from tests.tables.test_workbooks import MAIN, workbook

fastexcel = pytest.importorskip("fastexcel")

FAR = '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
TABLE = '<row r="1"><c r="A1"><v>1</v></c><c r="B1"><v>2</v></c></row><row r="2"><c r="A2"><v>3</v></c></row>'
FAR_MESSAGE = r"spans 1,048,576 rows and 16,384 columns because of a cell at XFD1048576: delete it, or save the table"


def with_members(content, changes, renamed=None):
    """Return an archive in which some members are replaced or renamed."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr((renamed or {}).get(name, name), changes.get(name, old.read(name)))
    return file.getvalue()


def book(data, sheet=0, n_sheets=1):
    """Return a workbook with the sheets s0, s1 and so on, one of which has this XML."""
    content = workbook({f"s{i}": [["a", "b"], [1, 2]] for i in range(n_sheets)})
    xml = f"<worksheet {MAIN}><sheetData>{data}</sheetData></worksheet>"
    return with_members(content, {f"xl/worksheets/sheet{sheet}.xml": xml.encode()})


def read(folder, content, name="book.xlsx"):
    path = folder / name
    path.write_bytes(content)
    return Table(str(path)).read_all()


def loaded_shape(content, sheet="s0"):
    frame = fastexcel.read_excel(content).load_sheet(sheet, header_row=None, dtypes="string").to_polars()
    return frame.shape


# -- Excel, XML ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "far",
    [
        FAR,
        FAR.replace('"', "'"),
        FAR.replace("r=", "r\n = "),
        FAR.lower(),
        FAR.replace("<c ", '<c x=">" s="1" '),
        FAR.replace("<row", "<x:row").replace("</row", "</x:row").replace("<c", "<x:c").replace("</c", "</x:c"),
        '<row r="1048576">' + "<c/>" * 16383 + "<c><v>1</v></c></row>",
        "<row/>" * 1048574 + FAR.replace(' r="XFD1048576"', "").replace("<c>", "<c/>" * 16383 + "<c>"),
        '<row r="4"><c r="A4294967290"><v>1</v></c></row>',
        '<row r="4"><c r="ZZZZZZ4"><v>1</v></c></row>',
        f'<row r="4"><c r="{"Z" * 9999}4"><v>1</v></c></row>',
        f'<row r="{"9" * 9999}"><c><v>1</v></c></row>',
        FAR.replace("FD1", f"FD{'0' * 9999}1"),
        '<row r="4"><c r="A9"><v>1</v></c><c r="XFD2"><v>1</v></c><c r="A1048576"><v>1</v></c></row>',
        f"<!-- {'x' * 2**20} -->{FAR}",
    ],
)
def test_a_far_cell_is_refused_however_it_is_written(tmp_path, far):
    with pytest.raises(InvalidInputError, match=r"book.xlsx: the sheet 's0' spans .* because of"):
        read(tmp_path, book(TABLE + far))


def test_the_message_names_the_span_and_the_cell(tmp_path):
    with pytest.raises(InvalidInputError, match=f"book.xlsx: the sheet 's0' {FAR_MESSAGE} as CSV"):
        read(tmp_path, book(TABLE + FAR))
    two = '<row r="5"><c r="XFD5"><v>1</v></c></row><row r="99999"><c r="B99999"><v>1</v></c></row>'
    with pytest.raises(InvalidInputError, match="because of cells at B99999 and XFD5: delete them"):
        read(tmp_path, book(TABLE + two))


@pytest.mark.parametrize(
    ("target", "member"),
    [
        ("/xl/worksheets/sheet0.xml", "xl/worksheets/sheet0.xml"),
        ("worksheets/sheet0.xml", "xl\\WorkSheets\\Sheet0.XML"),
        ("worksheets/deep/table", "xl/worksheets/deep/table"),
        ("/elsewhere.bin", "elsewhere.bin"),
    ],
)
def test_a_sheet_is_checked_wherever_it_lies(tmp_path, target, member):
    content = book(TABLE + FAR)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        relations = archive.read("xl/_rels/workbook.xml.rels").replace(b"worksheets/sheet0.xml", target.encode())
    moved = with_members(content, {"xl/_rels/workbook.xml.rels": relations}, {"xl/worksheets/sheet0.xml": member})
    with pytest.raises(InvalidInputError, match=FAR_MESSAGE):
        read(tmp_path, moved)


def test_only_the_sheet_that_is_read_counts(tmp_path):
    assert read(tmp_path, book(TABLE + FAR, sheet=1, n_sheets=2)).columns == ["a", "b"]


def test_the_name_of_a_sheet_is_not_mistaken_for_the_number_of_another(tmp_path):
    content = book(TABLE + FAR, sheet=0, n_sheets=2)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        listed = archive.read("xl/workbook.xml")  # the first sheet has the number 1
    path = tmp_path / "book.xlsx"
    path.write_bytes(with_members(content, {"xl/workbook.xml": listed.replace(b'"s1"', b'"1"')}))
    assert Table(str(path), layout=TextLayout(sheet="1")).read_all().columns == ["a", "b"]
    with pytest.raises(InvalidInputError, match=FAR_MESSAGE):
        Table(str(path), layout=TextLayout(sheet="s0")).read_all()


def test_empty_cells_do_not_count(tmp_path):
    empty = '<row r="1048576"><c r="XFC1048576" s="1"/><c r="XFD1048576" s="1"> </c></row>'
    assert read(tmp_path, book(TABLE + empty)).shape == (1, 2)


def test_a_long_table_is_read(tmp_path):
    assert read(tmp_path, book(TABLE + '<row r="1048576"><c r="A1048576"><v>1</v></c></row>')).height == 2


def test_a_damaged_sheet_is_an_error(tmp_path):
    content = book(TABLE + FAR)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        position = content.rindex(struct.pack("<I", archive.getinfo("xl/worksheets/sheet0.xml").CRC))
    for damaged in (
        book(TABLE + FAR.replace("<c ", '<c x="<" ')),
        content[:position] + b"\0\0\0\0" + content[position + 4 :],  # a wrong checksum
        content[: len(content) // 2],
    ):
        with pytest.raises(InvalidInputError, match=r"book.xlsx.* (is damaged|cannot be read)"):
            read(tmp_path, damaged)


def test_a_panic_of_the_reader_is_an_error(tmp_path, monkeypatch):
    panic = type("PanicException", (BaseException,), {})

    def fail(_content):
        raise panic("index out of bounds")

    monkeypatch.setattr(fastexcel, "read_excel", fail)
    with pytest.raises(InvalidInputError, match=r"book.xlsx cannot be read as an Excel file: index out of bounds\."):
        read(tmp_path, book(TABLE))


CELLS = st.tuples(
    st.sampled_from(["<c{}><v>1</v></c>", "<c{}/>", "<x:c{} s='1'><v>1</v></x:c>", '<c s="1"{}><is><t>a</t></is></c>']),
    st.none() | st.tuples(st.sampled_from(["A", "B", "E", "Z", "AA", "BC"]), st.sampled_from([1, 2, 9, 10, 31])),
)
ROWS = st.lists(st.tuples(st.none() | st.integers(1, 12), st.lists(CELLS, max_size=4)), max_size=5)


@given(rows=ROWS, limit=st.integers(1, 300), n_bytes=st.integers(1, 200))
def test_exactly_the_sheets_beyond_the_limit_are_refused(rows, limit, n_bytes):
    data = ""
    for number, cells in rows:
        references = [(form, "" if at is None else ' r="{}{}"'.format(*at)) for form, at in cells]
        inner = "".join(form.format(reference) for form, reference in references)
        data += f"<row>{inner}</row>" if number is None else f'<row r="{number}">{inner}</row>'
    content = book(data)
    n_rows, n_columns = loaded_shape(content)
    with pytest.MonkeyPatch.context() as patch:
        for module in (workbook_checks, xlsx_spans):
            patch.setattr(module, "MAX_CELLS", limit)
        patch.setattr(workbook_checks, "_CHUNK_BYTES", n_bytes)
        if n_rows * n_columns > limit:
            with pytest.raises(InvalidInputError, match=f"spans {n_rows} rows and {n_columns} columns"):
                workbook_checks.check_sheet(content, "s0", "book.xlsx")
        else:
            workbook_checks.check_sheet(content, "s0", "book.xlsx")


# -- Excel, binary ------------------------------------------------------------------------------------------------


def record(kind, data=b""):
    kinds = bytes([kind]) if kind < 128 else bytes([kind & 127 | 128, kind >> 7])
    return kinds + bytes([len(data)]) + data


def wide(text):
    return struct.pack("<I", len(text)) + text.encode("utf-16-le")


def binary_book(cells):
    """Return an .xlsb workbook; the cells are pairs of a row and a column."""
    sheet = record(0x81) + record(0x94, bytes(16)) + record(0x91)
    for row, column in cells:
        sheet += record(0, struct.pack("<I", row) + bytes(13)) + record(5, struct.pack("<IId", column, 0, 1.0))
    relations = '<Relationships><Relationship Id="r7" Type="worksheet" Target="worksheets/a.bin"/></Relationships>'
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        listed = record(0x9C, struct.pack("<II", 0, 1) + wide("r7") + wide("s0")) + record(0x90) + record(0x9D)
        archive.writestr("xl/workbook.bin", listed)
        archive.writestr("xl/_rels/workbook.bin.rels", relations)
        archive.writestr("xl/worksheets/a.bin", sheet + record(0x92))
    return file.getvalue()


def test_binary_workbooks_are_checked(tmp_path):
    assert loaded_shape(binary_book([(0, 0), (2, 3)])) == (3, 4)
    assert read(tmp_path, binary_book([(0, 0), (2, 3)]), "book.xlsb").height == 1
    with pytest.raises(InvalidInputError, match=FAR_MESSAGE):
        read(tmp_path, binary_book([(0, 0), (1048575, 16383)]), "book.xlsb")


def test_shared_texts_of_binary_workbooks_are_counted(tmp_path, monkeypatch):
    texts = record(0x9F, struct.pack("<II", 2, 2))
    texts += b"".join(record(19, b"\0" + wide(text)) for text in ("x", "long")) + record(0xA0)
    cells = b"".join(record(7, struct.pack("<III", column, 0, 1)) for column in range(3))
    sheet = record(0x81) + record(0x94, bytes(16)) + record(0x91)
    sheet += b"".join(record(0, struct.pack("<I", row) + bytes(13)) + cells for row in range(2)) + record(0x92)
    file = io.BytesIO(with_members(binary_book([(0, 0)]), {"xl/worksheets/a.bin": sheet}))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("xl/sharedStrings.bin", texts)
    assert read(tmp_path, file.getvalue(), "book.xlsb").row(0) == ("long", "long", "long")
    monkeypatch.setattr(workbook_checks, "MAX_TEXT_BYTES", 6 * len(b"\0" + wide("long")) - 1)
    with pytest.raises(InvalidInputError, match="the cells of the sheet 's0' contain more than 4 GiB of text"):
        read(tmp_path, file.getvalue(), "book.xlsb")


# -- OpenDocument -------------------------------------------------------------------------------------------------

CELL = '<table:table-cell office:value-type="float" office:value="1"/>'


def empty(n_columns):
    return f'<table:table-cell table:number-columns-repeated="{n_columns}"/>'


def document_row(cells, n_rows=1):
    return f'<table:table-row table:number-rows-repeated="{n_rows}">{cells}</table:table-row>'


def document(*sheets):
    """Return an .ods file."""
    tables = "".join(
        f'<table:table table:name="s{i}"><table:table-column table:number-columns-repeated="999"/>{rows}</table:table>'
        for i, rows in enumerate(sheets)
    )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("META-INF/manifest.xml", "<manifest:manifest/>")
        archive.writestr("content.xml", f"<office:spreadsheet>{tables}</office:spreadsheet>")
    return file.getvalue()


FAR_ROW = document_row(empty(16384), 1048574) + document_row(empty(16383) + CELL)


@pytest.mark.parametrize(
    "sheets", [(document_row(CELL) + FAR_ROW,), (document_row(CELL), document_row(CELL) + FAR_ROW)]
)
def test_far_cells_of_documents_are_refused(tmp_path, sheets):
    name = f"s{len(sheets) - 1}"
    with pytest.raises(InvalidInputError, match=f"the sheet '{name}' spans 1,048,576 rows and 16,384 columns: delete"):
        read(tmp_path, document(*sheets), "book.ods")


def test_many_sheets_of_a_document_count_together(tmp_path):
    sheet = document_row(CELL) + document_row(empty(5), 30000) + document_row(empty(999) + CELL)
    with pytest.raises(InvalidInputError, match="spans 30,002 rows and 1,000 columns"):
        read(tmp_path, document(*[sheet] * 3), "book.ods")


def test_empty_cells_after_the_table_do_not_count(tmp_path):
    tail = document_row(empty(16384), 1048570) + "<table:table-row/>" + document_row("<table:table-cell/>", 10**9)
    rows = document_row(CELL + CELL + empty(16382)) + document_row(CELL * 2, 3) + tail
    assert read(tmp_path, document(rows), "book.ods").shape == (3, 2)


@pytest.mark.parametrize(
    "text",
    ["><text:p>{}</text:p>", "><text:p><![CDATA[<{}>]]></text:p>", " office:string-value = '{}\">'>"],
)
def test_text_that_is_repeated_too_often_is_refused(tmp_path, text):
    cell = '<table:table-cell office:value-type="string" table:number-columns-repeated="100"'
    cell += f"{text.format('x' * 100_000)}</table:table-cell>"
    with pytest.raises(InvalidInputError, match="its cells contain more than 4 GiB of text: save it as CSV"):
        read(tmp_path, document(document_row(cell, 500)), "book.ods")
    assert read(tmp_path, document(document_row(cell.replace('"100"', '"2"'), 2)), "book.ods").shape == (1, 2)


REPEATS = st.integers(1, 4)
DOCUMENT_CELLS = st.tuples(st.booleans(), REPEATS).map(
    lambda cell: empty(cell[1]).replace("/>", ' office:value-type="float" office:value="1"/>' if cell[0] else "/>")
)


@given(rows=st.lists(st.tuples(st.lists(DOCUMENT_CELLS | st.just(CELL), max_size=4), REPEATS), max_size=5))
def test_the_span_of_a_document_contains_what_is_loaded(rows):
    content = document("".join(document_row("".join(cells), n_rows) for cells, n_rows in rows))
    n_rows, n_columns = loaded_shape(content)
    with pytest.MonkeyPatch.context() as patch, zipfile.ZipFile(io.BytesIO(content)) as archive:
        patch.setattr(ods_spans, "MAX_CELLS", 0)
        found = ods_spans.largest_table(iter([archive.read("content.xml")]))
    assert (found is None) == (n_rows == 0)
    if found is not None:
        assert found.n_rows >= n_rows
        assert found.n_columns >= n_columns
