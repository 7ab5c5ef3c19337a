"""Tables are written completely or not at all, and can be read back."""

import io
import os
import sys
from datetime import timedelta

import polars as pl
import pytest

from imondrian.base.errors import InvalidInputError
from imondrian.tables.table_reader import Table
from imondrian.tables.table_writer import table_writer

FIRST = pl.DataFrame({"a": [1.5, None], "b": ["x,\n", 'y"']})
SECOND = pl.DataFrame({"a": [2.5], "b": ["z"]})


@pytest.mark.parametrize("extension", ["csv", "tsv", "ndjson", "parquet"])
def test_batches_are_joined_into_one_table(tmp_path, extension):
    path = tmp_path / f"out.{extension}"
    with table_writer(str(path)) as write:
        write(FIRST)
        write(SECOND)
        assert not path.exists()
    read = Table(str(path)).read_all()
    assert read["a"].cast(pl.Float64).to_list() == [1.5, None, 2.5]
    assert read["b"].to_list() == ["x,\n", 'y"', "z"]
    assert os.listdir(tmp_path) == [path.name]  # noqa: PTH208


@pytest.mark.parametrize("extension", ["csv", "parquet", "ndjson"])
def test_an_error_leaves_the_old_file(tmp_path, extension):
    path = tmp_path / f"out.{extension}"
    path.write_text("old")
    with pytest.raises(pl.exceptions.ColumnNotFoundError), table_writer(str(path)) as write:
        write(FIRST) or FIRST["none"]
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == [path.name]  # noqa: PTH208


def test_lists_and_records_become_json_in_csv(tmp_path):
    frame = pl.DataFrame({"a": [[1, 2], None], "b": [{"c": 1}, {"c": 2}]})
    with table_writer(str(tmp_path / "out.csv")) as write:
        write(frame)
    assert Table(str(tmp_path / "out.csv")).read_all().rows() == [("[1, 2]", '{"c": 1}'), (None, '{"c": 2}')]


@pytest.mark.parametrize("extension", ["csv", "tsv"])
def test_durations_become_text_in_csv(tmp_path, extension):
    path = tmp_path / f"out.{extension}"
    with table_writer(str(path)) as write:
        write(pl.DataFrame({"d": [timedelta(hours=25), None, timedelta(seconds=1.5)], "x": [1, 2, 3]}))
    assert Table(str(path)).read_all()["d"].to_list() == ["1 day, 1:00:00", None, "0:00:01.500000"]


def test_a_late_column_raises_and_a_missing_one_is_empty(tmp_path):
    with table_writer(str(tmp_path / "o.csv")) as write:
        write(SECOND)
        with pytest.raises(InvalidInputError, match="'c' appears only after"):
            write(SECOND.with_columns(c=1))
    with table_writer(str(tmp_path / "o.csv")) as write:
        write(SECOND)
        write(SECOND.drop("a"))
    assert Table(str(tmp_path / "o.csv")).read_all()["a"].to_list() == ["2.5", None]


def test_batches_of_different_types_lose_no_values(tmp_path):
    whole, broken = pl.DataFrame({"a": [3], "tag": [1]}), pl.DataFrame({"a": [5.75], "tag": ["x"]})
    for extension, rows in (("csv", [("3", "1"), ("5.75", "x")]), ("parquet", [(3.0, "1"), (5.75, "x")])):
        with table_writer(str(tmp_path / f"o.{extension}")) as write:
            write(whole)
            write(broken)
        assert Table(str(tmp_path / f"o.{extension}")).read_all().rows() == rows


@pytest.mark.parametrize("extension", ["csv", "tsv", "ndjson", "parquet"])
def test_bytes_are_written(tmp_path, extension):
    with table_writer(str(tmp_path / f"o.{extension}")) as write:
        write(pl.DataFrame({"a": [b"\x00\xff", None]}))
    assert Table(str(tmp_path / f"o.{extension}")).read_all()["a"].to_list()[0] in ("00ff", b"\x00\xff")


def test_parquet_accepts_new_columns_and_types(tmp_path):
    with table_writer(str(tmp_path / "o.parquet")) as write:
        write(pl.DataFrame({"a": [1, 2]}))
        write(pl.DataFrame({"a": [1.5], "late": ["x"]}))
    assert pl.read_parquet(tmp_path / "o.parquet").rows() == [(1.0, None), (2.0, None), (1.5, "x")]


@pytest.mark.parametrize("name", ["out", "out.xls", "out.csv.gz"])
def test_an_unknown_extension_raises(tmp_path, name):
    with (
        pytest.raises(InvalidInputError, match="the name of an output table must end in"),
        table_writer(str(tmp_path / name)),
    ):
        pass


def test_standard_output_is_csv(monkeypatch):
    out = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", out)
    with table_writer("-") as write:
        write(SECOND)
    assert out.buffer.getvalue() == b"a,b\n2.5,z\n"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with table_writer(str(pipe)) as write:
        write(SECOND)
    assert os.read(reader, 100) == b"a,b\n2.5,z\n"
    os.close(reader)
    assert pipe.is_fifo()
