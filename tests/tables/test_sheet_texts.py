"""Workbooks that need too much memory for their texts are refused before they are loaded."""

import io
import struct
import zipfile
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian.base.errors import InvalidInputError
from imondrian.tables import sheet_texts, workbook_checks
from imondrian.tables.table_reader import Table
from tests.tables.test_workbook_checks import FAR, TABLE, book, fastexcel
from tests.tables.test_workbooks import MAIN


def with_texts(data, *texts):
    """Return a workbook with a sheet and shared texts."""
    file = io.BytesIO(book(data))
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/sharedStrings.xml", f"<sst {MAIN}>{''.join(texts)}</sst>")
    return file.getvalue()


def shared_rows(n_rows, text=0):
    return "".join(f'<row r="{i}"><c r="A{i}" t="s"><v>{text}</v></c></row>' for i in range(1, n_rows + 1))


def read(folder, content):
    path = folder / "book.xlsx"
    path.write_bytes(content)
    return Table(str(path)).read_all()


def test_a_long_text_in_many_cells_is_refused(tmp_path):
    texts = [f"<si><t>{'x' * 32000}</t></si>", "<si><t>y</t></si>"]
    with pytest.raises(InvalidInputError, match="the cells of the sheet 's0' contain more than 4 GiB of text: save it"):
        read(tmp_path, with_texts(shared_rows(140_000), *texts))
    assert read(tmp_path, with_texts(shared_rows(140_000, text=1), *texts)).height == 139_999


def test_large_shared_texts_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(workbook_checks, "_MAX_PART_BYTES", 10_000)
    with pytest.raises(InvalidInputError, match="shared texts and styles of the workbook are longer than 512 MiB"):
        read(tmp_path, with_texts(TABLE, "<si><t/></si>" * 1000))
    assert read(tmp_path, with_texts(TABLE, "<si><t/></si>" * 100)).height == 1


def test_the_size_of_a_member_cannot_hide_a_cell(tmp_path):
    content = bytearray(book(TABLE + " " * 50_000 + FAR))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        start = archive.read("xl/worksheets/sheet0.xml")[:1000]
        position = content.rindex(struct.pack("<I", archive.getinfo("xl/worksheets/sheet0.xml").CRC))
    struct.pack_into("<I", content, position, zlib.crc32(start))
    struct.pack_into("<I", content, position + 8, len(start))
    with pytest.raises(InvalidInputError, match=r"book.xlsx cannot be read as an Excel file: Bad CRC"):
        read(tmp_path, bytes(content))


TEXTS = st.sampled_from(
    [
        "<si><t>abc</t></si>",
        "<si/>",
        "<si><r><rPr/><t>a</t></r><r><t>bcdefgh</t></r></si>",
        "<si><t><![CDATA[a</si><b>c]]></t></si>",
        "<si><t>a<!--</si>-->b</t></si>",
        "<x:si><x:t>long enough</x:t></x:si>",
        "<si ><t>a/si></t></si >",
    ]
)
CELLS = st.sampled_from(
    [
        '<c t="s"><v>{}</v></c>',
        "<c t='s' s='0'><v>{}</v></c>",
        '<c s="0" t="s" x=">"><v>{}</v></c>',
        '<c t="s"><v>0</v><v>{}</v></c>',
        '<c t="inlineStr"><is><t><![CDATA[<a>{}]]></t></is></c>',
        "<c><v>{}</v></c>",
    ]
)


@given(
    texts=st.lists(TEXTS, min_size=1, max_size=5),
    cells=st.lists(st.tuples(CELLS, st.integers(0, 4)), min_size=1, max_size=6),
    n_bytes=st.integers(1, 300),
    limit=st.sampled_from([0, 2**32]),
)
def test_the_bound_is_not_below_the_text_that_is_loaded(texts, cells, n_bytes, limit):
    row = "".join(cell.format(min(i, len(texts) - 1)) for cell, i in cells)
    content = with_texts(f"<row>{row}</row>", *texts)
    frame = fastexcel.read_excel(content).load_sheet("s0", header_row=None, dtypes="string").to_polars()
    n_loaded = sum(len(text) for cells in frame.rows() for text in cells if text)
    with pytest.MonkeyPatch.context() as patch, zipfile.ZipFile(io.BytesIO(content)) as archive:
        patch.setattr(sheet_texts, "MAX_TEXT_BYTES", limit)
        members = [archive.read(name) for name in ("xl/worksheets/sheet0.xml", "xl/sharedStrings.xml")]
        sheet, shared = ([xml[i : i + n_bytes] for i in range(0, len(xml), n_bytes)] for xml in members)
        assert sheet_texts.n_text_bytes(lambda: iter(sheet), lambda: iter(shared)) >= n_loaded


def test_the_bound_is_close_for_ordinary_sheets(monkeypatch):
    monkeypatch.setattr(sheet_texts, "MAX_TEXT_BYTES", 0)
    shared = [b"<sst><si><t>abc</t></si>", b"<si><r><t>d</t></r><r><t>ef", b"g</t></r></si></sst>"]
    sheet = [b'<row><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c><c r="C1" t="s" s="1"><v>1</v></c></row>']
    n_texts, n_numbers = 3 + 4 + 4, 3
    assert sheet_texts.n_text_bytes(lambda: iter(sheet), lambda: iter(shared)) == n_texts + n_numbers
