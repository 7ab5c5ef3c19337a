"""Text in every common encoding is read, whatever the blocks in which it arrives."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian.base.errors import InvalidInputError
from imondrian.tables.encodings import Utf8Reader

TEXT = "Größe;Preis\nfünf;5 €\n" * 3


def read(content, encoding="auto", n_bytes=2**20):
    file = io.BytesIO(content)
    reader = Utf8Reader(file.read, encoding, "t.csv")
    blocks = []
    while block := reader.read(n_bytes):
        blocks.append(block)
    return b"".join(blocks).decode("utf-8-sig"), reader.note


@pytest.mark.parametrize("name", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_unicode_is_recognised(name):
    assert read(TEXT.encode(name)) == (TEXT, None)


def test_other_text_is_windows_1252_with_a_note():
    text, note = read(TEXT.encode("cp1252"))
    assert text == TEXT
    assert "was read as Windows-1252" in note


@pytest.mark.parametrize("name", ["utf-16", "latin-1", "cp437", "shift-jis", "utf-8"])
@given(n_bytes=st.integers(1, 50))
def test_a_chosen_encoding_is_used_with_any_block_size(name, n_bytes):
    text = "é" * 20 if name != "shift-jis" else "日本" * 20
    assert read(text.encode(name), name, n_bytes) == (text, None)


@given(n_ascii=st.integers(0, 50), n_bytes=st.integers(1, 30))
def test_windows_1252_is_recognised_by_the_last_byte(n_ascii, n_bytes):
    text = "a" * n_ascii + "é"
    assert read(text.encode("cp1252"), n_bytes=n_bytes) == (
        text,
        "the text is not UTF-8 and was read as Windows-1252 (--encoding chooses another one)",
    )


@given(n_ascii=st.integers(0, 50), n_bytes=st.integers(1, 30))
def test_the_encoding_is_recognised_after_any_amount_of_ascii(n_ascii, n_bytes):
    text = "a" * n_ascii + "€ é"
    assert read(text.encode(), n_bytes=n_bytes)[0] == text


def test_impossible_encodings_are_refused():
    with pytest.raises(InvalidInputError, match="encoding 'klingon' is unknown"):
        read(b"", "klingon")
    with pytest.raises(InvalidInputError, match="encoding 'hex' is unknown"):
        read(b"", "hex")
    with pytest.raises(InvalidInputError, match=r"t.csv: the byte 0x81 is not valid in cp1252"):
        read(b"a\x81")


@pytest.mark.parametrize(
    ("content", "encoding", "what"),
    [
        (b"a,b\n1,2\n", "utf-16", r"the text \(UTF-16 stream does not start with BOM\)"),
        (b"a\n+2AA-\n", "utf-7", "half of a surrogate pair"),
        (b"a\n\\ud800\n", "unicode_escape", "half of a surrogate pair"),
        (b"a,b\n1,2\n", "punycode", r"the text \("),
    ],
)
def test_text_that_is_not_in_the_chosen_encoding_is_an_error(content, encoding, what):
    with pytest.raises(InvalidInputError, match=f"t.csv: {what}.* is not valid in .*choose another --encoding"):
        read(content, encoding)
