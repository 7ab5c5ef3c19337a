"""Archives whose directory readers could find in different places are refused; all others are accepted."""

import io
import struct
import zipfile
import zlib

import pytest

from imondrian.base.errors import InvalidInputError
from imondrian.tables.table_reader import Table
from imondrian.tables.zip_directory import check_directory
from tests.tables.test_workbook_checks import FAR, TABLE, book


def archive(comment=b"", data=b"1"):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as members:
        members.writestr(zipfile.ZipInfo("a"), data)  # has a fixed date: the test names must not depend on the time
        members.comment = comment
    return file.getvalue()


def long_archive(**changes):
    """Return an archive with the 64-bit end record; some of the fields can be changed."""
    content = archive()
    end = len(content) - 22
    n_bytes, offset = struct.unpack_from("<12xII", content, end)
    fields = {"located": end, "n_members": 1, "n_bytes": n_bytes, "offset": offset} | changes
    long_end = struct.pack("<4sQHHIIQ", b"PK\x06\x06", 44, 45, 45, 0, 0, fields["n_members"])
    long_end += struct.pack("<QQQ", fields["n_members"], fields["n_bytes"], fields["offset"])
    locator = struct.pack("<4sIQI", b"PK\x06\x07", 0, fields["located"], 1)
    short = struct.pack("<4sHHHHIIH", b"PK\x05\x06", 0, 0, 2**16 - 1, 2**16 - 1, 2**32 - 1, 2**32 - 1, 0)
    return content[:end] + long_end + locator + short


@pytest.mark.parametrize(
    "content",
    [archive(), archive(b"a comment"), archive(b"x" * 65535), long_archive(), archive(data=b"PK\x05\x06abcd"), b"PK"],
)
def test_ordinary_archives_are_accepted(content):
    check_directory(content, "a.zip")


@pytest.mark.parametrize(
    "content",
    [
        archive() + b"x",
        archive()[:-2] + struct.pack("<H", 5),
        archive()[:-1],
        b"x" + archive(),
        archive(archive()),
        archive(data=archive()),
        archive(data=archive() + bytes(70000)),
        archive(data=long_archive()[:-18] + b"ab"),
        long_archive(located=3),
        long_archive(offset=3),
        long_archive()[:-10] + struct.pack("<IIH", 3, 3, 0),
        archive()[:-22] + struct.pack("<4s16x", b"PK\x06\x07") + archive()[-22:],
    ],
)
def test_ambiguous_archives_are_refused(content):
    with pytest.raises(
        InvalidInputError, match=r"a.zip is damaged: its directory is ambiguous; save the table as CSV\."
    ):
        check_directory(content, "a.zip")


def test_a_far_cell_cannot_hide_behind_a_second_directory(tmp_path):
    near, far = book(TABLE), book(TABLE + FAR)
    near = near[:-2] + struct.pack("<H", 5)
    path = tmp_path / "book.xlsx"
    path.write_bytes(far[:-2] + struct.pack("<H", len(near)) + near)
    with pytest.raises(
        InvalidInputError, match=r"book.xlsx is damaged: its directory is ambiguous; save the table as CSV\."
    ):
        Table(str(path)).read_all()


def test_a_far_cell_cannot_hide_in_a_member_with_two_names(tmp_path):
    name, second = "xl/other.xml", b"xl/worksheets/sheet0.xml"
    member = zipfile.ZipInfo(name)
    member.extra = struct.pack("<HHBI", 0x7075, 5 + len(second), 1, zlib.crc32(name.encode())) + second
    path = tmp_path / "book.xlsx"
    path.write_bytes(book(TABLE))
    with zipfile.ZipFile(path, "a") as members:
        members.writestr(member, f"<worksheet><sheetData>{TABLE}{FAR}</sheetData></worksheet>")
    with pytest.raises(InvalidInputError, match=r"book.xlsx is damaged: the member .* has two names\."):
        Table(str(path)).read_all()
