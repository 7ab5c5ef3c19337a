"""Hostile and damaged workbooks: each is read, or refused with an error, in bounded memory."""

import gzip
import io
import os
import re
import signal
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from contextlib import nullcontext
from pathlib import Path

import pytest

from imondrian.base.errors import InvalidInputError
from imondrian.tables import workbook_process, workbooks
from imondrian.tables.table_reader import Table, TextLayout
from tests.tables.test_workbooks import MAIN, workbook

pytest.importorskip("fastexcel")

GIB = 2**30
FAR = '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
TABLE = '<row r="1"><c r="A1"><v>1</v></c><c r="B1"><v>2</v></c></row><row r="2"><c r="A2"><v>3</v></c></row>'
TOO_LARGE = (
    r"book\.\w+: the sheet 's0' cannot be loaded: it is damaged, or needs more than 1 GiB of memory or one hour\."
    r" Delete the cells far from the table, or save the table as CSV\."
)
READ = (["1", "2"], [("3", None)])  # the columns and rows of `TABLE`


@pytest.fixture(autouse=True)
def little_memory(monkeypatch):
    monkeypatch.setattr(workbooks, "_MAX_BYTES", GIB)


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


def refused(folder, content, name="book.xlsx"):
    """Return the error that reading a workbook raises."""
    with pytest.raises(InvalidInputError, match=r"^\S*book\.\w+[: ]") as caught:
        read(folder, content, name)
    return str(caught.value)


def is_correct_or_refused(folder, content, name="book.xlsx"):
    """Return True if a workbook is refused, or its rows are those of `TABLE` and at most one more."""
    frame = frame_or_none(folder, content, name)
    if frame is None:
        return True
    return frame.columns[:2] == READ[0] and frame.rows()[0][:2] == READ[1][0] and frame.height <= 2


def frame_or_none(folder, content, name="book.xlsx"):
    """Return the rows of a workbook, or None if it is refused with an error that names it."""
    try:
        return read(folder, content, name)
    except InvalidInputError as error:
        if re.match(r"\S*book\.\w+[: ]", str(error)) is None:
            raise
        return None


# -- cells far from the table, Excel ------------------------------------------------------------------------------


def test_a_far_cell_is_refused(tmp_path):
    assert re.search(TOO_LARGE, refused(tmp_path, book(TABLE + FAR)))


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
def test_a_far_cell_never_ends_the_process(tmp_path, far):
    assert is_correct_or_refused(tmp_path, book(TABLE + far))


@pytest.mark.parametrize(
    ("target", "member"),
    [
        ("/xl/worksheets/sheet0.xml", "xl/worksheets/sheet0.xml"),
        ("worksheets/sheet0.xml", "xl\\WorkSheets\\Sheet0.XML"),
        ("worksheets/deep/table", "xl/worksheets/deep/table"),
        ("/elsewhere.bin", "elsewhere.bin"),
    ],
)
def test_a_far_cell_is_refused_wherever_the_sheet_lies(tmp_path, target, member):
    content = book(TABLE + FAR)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        relations = archive.read("xl/_rels/workbook.xml.rels").replace(b"worksheets/sheet0.xml", target.encode())
    moved = with_members(content, {"xl/_rels/workbook.xml.rels": relations}, {"xl/worksheets/sheet0.xml": member})
    refused(tmp_path, moved)


def test_only_the_sheet_that_is_read_counts(tmp_path):
    path = tmp_path / "book.xlsx"
    path.write_bytes(book(TABLE + FAR, sheet=1, n_sheets=2))
    assert Table(str(path)).read_all().columns == ["a", "b"]
    with pytest.raises(InvalidInputError, match=r"book\.xlsx: the sheet 's1' cannot be loaded"):
        Table(str(path), layout=TextLayout(sheet="s1")).read_all()


def test_a_long_table_is_read(tmp_path):
    frame = read(tmp_path, book(TABLE + '<row r="1048576"><c r="A1048576"><v>1</v></c></row>'))
    assert frame.rows() == [("3", None), ("1", None)]


def test_empty_cells_do_not_count(tmp_path):
    empty = '<row r="1048576"><c r="XFC1048576" s="1"/><c r="XFD1048576" s="1"> </c></row>'
    assert read(tmp_path, book(TABLE + empty)).shape == (1, 2)


# -- texts --------------------------------------------------------------------------------------------------------


def with_texts(data, *texts):
    """Return a workbook with a sheet and shared texts."""
    file = io.BytesIO(book(data))
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/sharedStrings.xml", f"<sst {MAIN}>{''.join(texts)}</sst>")
    return file.getvalue()


def shared_rows(n_rows, text=0):
    return "".join(f'<row r="{i}"><c r="A{i}" t="s"><v>{text}</v></c></row>' for i in range(1, n_rows + 1))


def test_a_long_text_in_many_cells_is_refused(tmp_path):
    texts = [f"<si><t>{'x' * 2**20}</t></si>", "<si><t>y</t></si>"]
    assert re.search(TOO_LARGE, refused(tmp_path, with_texts(shared_rows(10**6), *texts)))
    assert read(tmp_path, with_texts(shared_rows(140_000, text=1), *texts)).height == 139_999


@pytest.mark.parametrize("member", ["xl/sharedStrings.xml", "xl/workbook.xml"])
def test_a_member_that_unpacks_to_gigabytes_is_refused(tmp_path, member):
    file = io.BytesIO()
    content = book(TABLE + shared_rows(3))
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, True, 1) as new:
        for name in set(old.namelist()) - {member}:
            new.writestr(name, old.read(name))
        with new.open(member, "w") as long:
            long.write(f"<sst {MAIN}><si><t>".encode())
            for _ in range(900):
                long.write(b"x" * 2**20)
    assert "cannot be" in refused(tmp_path, file.getvalue())


def test_too_large_cells_are_not_handed_over(monkeypatch):
    monkeypatch.setattr(workbook_process, "_limited_memory", lambda _max_bytes: nullcontext())
    content = book(TABLE)
    assert workbook_process._load(content, workbook_process.Request(None, 2**10)).height == 2
    with pytest.raises(MemoryError):
        workbook_process._load(content, workbook_process.Request(None, 2**6))


def test_a_very_long_name_of_a_sheet_is_read(tmp_path):
    assert frame_or_none(tmp_path, workbook({"s" * 2**21: [["a"], ["b"]]})).rows() == [("b",)]


# -- damaged files ------------------------------------------------------------------------------------------------


def test_a_workbook_is_decompressed_up_to_a_limit(tmp_path, monkeypatch):
    path = tmp_path / "t.xlsx.gz"
    path.write_bytes(gzip.compress(workbook({"s": []}) + bytes(10**6)))
    monkeypatch.setattr("imondrian.tables.table_reader._MAX_WORKBOOK_BYTES", 10**5)
    table = Table(str(path))
    monkeypatch.setattr(table._file, "read", lambda n_bytes, read=table._file.read: read(in_limit(n_bytes)))
    with pytest.raises(InvalidInputError, match="a workbook may have at most"):
        table.read_all()


def in_limit(n_bytes):
    assert 0 <= n_bytes <= 10**5 + 1
    return n_bytes


def test_damaged_workbooks_are_refused(tmp_path):
    content = book(TABLE + FAR)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        position = content.rindex(struct.pack("<I", archive.getinfo("xl/worksheets/sheet0.xml").CRC))
    for damaged in (
        book(TABLE + FAR.replace("<c ", '<c x="<" ')),
        content[:position] + b"\0\0\0\0" + content[position + 4 :],  # a wrong checksum
        content[: len(content) // 2],
    ):
        assert re.search("cannot be (loaded: it is damaged|read as an Excel file)", refused(tmp_path, damaged))


def test_the_size_of_a_member_cannot_hide_a_cell(tmp_path):
    content = bytearray(book(TABLE + " " * 50_000 + FAR))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        start = archive.read("xl/worksheets/sheet0.xml")[:1000]
        position = content.rindex(struct.pack("<I", archive.getinfo("xl/worksheets/sheet0.xml").CRC))
    struct.pack_into("<I", content, position, zlib.crc32(start))
    struct.pack_into("<I", content, position + 8, len(start))
    assert is_correct_or_refused(tmp_path, bytes(content))


def test_a_second_directory_cannot_hide_a_cell(tmp_path):
    near, far = book(TABLE), book(TABLE + FAR)
    near = near[:-2] + struct.pack("<H", 5)
    assert is_correct_or_refused(tmp_path, far[:-2] + struct.pack("<H", len(near)) + near)


def test_a_second_name_cannot_hide_a_cell(tmp_path):
    second = b"xl/worksheets/sheet0.xml"
    member = zipfile.ZipInfo("xl/other.xml")
    member.extra = struct.pack("<HHBI", 0x7075, 5 + len(second), 1, zlib.crc32(b"xl/other.xml")) + second
    file = io.BytesIO(book(TABLE))
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(member, f"<worksheet><sheetData>{TABLE}{FAR}</sheetData></worksheet>")
    assert is_correct_or_refused(tmp_path, file.getvalue())


# -- the process --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        "os.abort()",
        "os.kill(os.getpid(), 9)",
        "raise MemoryError",
        "raise type('PanicException', (BaseException,), {})('index out of bounds')",
    ],
)
def test_a_crash_of_the_reader_is_an_error(tmp_path, monkeypatch, capfd, failure):
    reader = "import os\nclass FastExcelError(Exception): pass\ndef read_excel(content):\n"
    reader += f"    os.write(2, b'panicked')\n    {failure}\n"
    (tmp_path / "fastexcel.py").write_text(reader)
    monkeypatch.syspath_prepend(tmp_path)
    message = "book.xlsx: the workbook cannot be loaded: it is damaged, or needs more than 1 GiB of memory"
    assert message in refused(tmp_path, book(TABLE))
    assert capfd.readouterr() == ("", "")


def test_modules_in_the_current_folder_are_not_imported(tmp_path, monkeypatch):
    for name in ("json", "zipfile", "polars", "fastexcel", "imondrian"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)
    Path("-book.xlsx").write_bytes(book(TABLE))
    assert Table("-book.xlsx").read_all().rows() == READ[1]


def test_a_reader_that_takes_too_long_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(workbooks, "_MAX_SECONDS", 1)
    (tmp_path / "fastexcel.py").write_text("import time\ntime.sleep(100)")
    monkeypatch.syspath_prepend(tmp_path)
    assert "the workbook cannot be loaded" in refused(tmp_path, book(TABLE))


MEASURE = """
import resource, sys
from imondrian.base.errors import InvalidInputError
from imondrian.tables import workbooks
from imondrian.tables.table_reader import Table

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

workbooks._MAX_BYTES = 2**30
before = peak()
try:
    Table(sys.argv[1]).read_all()
except InvalidInputError:
    print("refused", peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="measures in the units of Linux")
def test_the_parent_process_needs_little_memory(tmp_path):
    path = tmp_path / "book.xlsx"
    for content in (book(TABLE + FAR), with_texts(shared_rows(1000), f"<si><t>{'x' * 2**21}</t></si>")):
        path.write_bytes(content)
        result = subprocess.run([sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True)
        outcome, n_mib = result.stdout.split()
        assert outcome == "refused"
        assert int(n_mib) < 50


def children(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def is_running(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_no_process_and_no_file(tmp_path, number):
    folder = tmp_path / "temporary"
    folder.mkdir()
    path = tmp_path / "book.xlsx"
    path.write_bytes(book(TABLE))
    (tmp_path / "fastexcel.py").write_text("import time\ntime.sleep(1000)")
    environment = {**os.environ, "TMPDIR": str(folder)}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *sys.path[1:]])
    command = [sys.executable, "-m", "imondrian", "detect", path]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=environment)
    wait_until(lambda: children(process.pid))
    (child,) = children(process.pid)
    process.send_signal(number)
    assert process.wait(60) != 0
    wait_until(lambda: not is_running(child))
    assert list(folder.iterdir()) == []
    process.stderr.close()


# -- binary Excel files -------------------------------------------------------------------------------------------


def record(kind, data=b""):
    kinds = bytes([kind]) if kind < 128 else bytes([kind & 127 | 128, kind >> 7])
    lengths = [len(data) >> 7 * i & 127 for i in range(4)]
    return kinds + bytes([n | 128 for n in lengths[:3]] + lengths[3:]) + data


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


def test_far_cells_of_binary_workbooks_are_refused(tmp_path):
    assert read(tmp_path, binary_book([(0, 0), (2, 3)]), "book.xlsb").height == 1
    assert re.search(TOO_LARGE, refused(tmp_path, binary_book([(0, 0), (1048575, 16383)]), "book.xlsb"))


def test_long_texts_in_binary_workbooks_are_refused(tmp_path):
    assert read(tmp_path, binary_texts("long", 2), "book.xlsb").row(0) == ("long", "long", "long")
    assert re.search(TOO_LARGE, refused(tmp_path, binary_texts("x" * 2**20, 10_000), "book.xlsb"))


def binary_texts(text, n_rows):
    """Return an .xlsb workbook with three columns, in which each cell refers to the same text."""
    texts = record(0x9F, struct.pack("<II", 2, 2))
    texts += b"".join(record(19, b"\0" + wide(shared)) for shared in ("x", text)) + record(0xA0)
    cells = b"".join(record(7, struct.pack("<III", column, 0, 1)) for column in range(3))
    sheet = record(0x81) + record(0x94, bytes(16)) + record(0x91)
    sheet += b"".join(record(0, struct.pack("<I", row) + bytes(13)) + cells for row in range(n_rows)) + record(0x92)
    file = io.BytesIO(with_members(binary_book([(0, 0)]), {"xl/worksheets/a.bin": sheet}))
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/sharedStrings.bin", texts)
    return file.getvalue()


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
    message = refused(tmp_path, document(*sheets), "book.ods")
    assert "Delete the" in message
    assert "save the table as CSV" in message


def test_many_sheets_of_a_document_are_read_or_refused(tmp_path):
    sheet = document_row(CELL) + document_row(empty(5), 30000) + document_row(empty(999) + CELL)
    frame = frame_or_none(tmp_path, document(*[sheet] * 3), "book.ods")
    assert frame is None or frame.height == 1


def test_empty_cells_after_the_table_do_not_count(tmp_path):
    tail = document_row(empty(16384), 1048570) + "<table:table-row/>" + document_row("<table:table-cell/>", 10**9)
    rows = document_row(CELL + CELL + empty(16382)) + document_row(CELL * 2, 3) + tail
    assert read(tmp_path, document(rows), "book.ods").shape == (3, 2)


@pytest.mark.parametrize(
    "text",
    ["><text:p>{}</text:p>", " office:string-value = '{}\">'>"],
)
def test_text_that_is_repeated_too_often_is_refused(tmp_path, text):
    cell = '<table:table-cell office:value-type="string" table:number-columns-repeated="100"'
    cell += f"{text.format('x' * 100_000)}</table:table-cell>"
    assert "save the table as CSV" in refused(tmp_path, document(document_row(cell, 500)), "book.ods")
    assert read(tmp_path, document(document_row(cell.replace('"100"', '"2"'), 2)), "book.ods").shape == (1, 2)


def test_text_that_the_reader_ignores_is_read_or_refused(tmp_path):
    cell = '<table:table-cell office:value-type="string" table:number-columns-repeated="100">'
    cell += f"<text:p><![CDATA[<{'x' * 100_000}>]]></text:p></table:table-cell>"
    frame = frame_or_none(tmp_path, document(document_row(cell, 500)), "book.ods")
    assert frame is None or frame.shape == (499, 100)
