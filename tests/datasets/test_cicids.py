"""The original file of CICIDS 2017 is read correctly despite its irregularities."""

import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian.base.errors import DamagedFileError
from imondrian.datasets import CATALOGUE, cicids, load

# as published: some names begin with a blank, and one appears twice
HEADER = ",".join(
    [
        " Destination Port",
        *((" " if j % 3 else "") + name.removesuffix(".1") for j, name in enumerate(cicids.FEATURES)),
        " Label",
    ]
)
BYTES, PACKETS = cicids.FEATURES.index("Flow Bytes/s"), cicids.FEATURES.index("Flow Packets/s")


def line(values, label="BENIGN", port="80"):
    return ",".join([port, *map(str, values), label]).encode("latin-1")


def values(seed, **cells):
    numbers = np.random.default_rng(seed).integers(0, 1000, 77).astype(object)
    for place, cell in cells.items():
        numbers[{"bytes": BYTES, "packets": PACKETS, "last": 76}[place]] = cell
    return list(numbers)


WHOLE = [
    (values(0), "BENIGN", 0),
    (values(1, bytes="1.2E7", packets="0.333333333333333315"), "DoS Hulk", 1),
    (values(2, last="-1"), " benign ", 0),
    (values(3), "Web Attack \x96 Sql Injection", 1),
    (values(4), "Heartbleed", 1),
    (values(5, bytes=" 12 "), "DoS slowloris", 1),
]
DROPPED = [
    (values(10, bytes="NaN", packets="Infinity"), "BENIGN"),
    (values(11, bytes="Infinity", packets="Infinity"), "DoS Hulk"),
    (values(12, bytes="", packets="Infinity"), "BENIGN"),
    (values(13, bytes="", packets="1"), "BENIGN"),
    (values(14, bytes=" ", packets="1"), "BENIGN"),
    (values(15, last="-Infinity"), "BENIGN"),
    (values(16), ""),
    ([""] * 77, "BENIGN"),
]
NO_ROWS = [b"", HEADER.encode(), b"," * 78]


@st.composite
def files(draw):
    """Return a file, its expected rows and number of dropped rows, and the block size to read it with."""
    kinds = draw(st.lists(st.integers(0, 2), min_size=1, max_size=12))
    lines, expected, n_dropped = [HEADER.encode()], [], 0
    for kind in kinds:
        if kind == 0:
            cells, label, is_anomaly = draw(st.sampled_from(WHOLE))
            lines.append(line(cells, label))
            expected.append(([float(cell) for cell in cells], is_anomaly))
        elif kind == 1:
            lines.append(line(*draw(st.sampled_from(DROPPED))))
            n_dropped += 1
        else:
            lines.append(draw(st.sampled_from(NO_ROWS)))
    end = draw(st.sampled_from([b"\n", b"\r\n"]))
    data = end.join(lines) + (end if draw(st.booleans()) else b"")
    return data, expected, n_dropped, draw(st.integers(1, 3000))


@given(file=files())
def test_every_row_is_kept_unchanged_or_counted_as_dropped(file):
    data, expected, n_dropped, block = file
    before = cicids.BLOCK_BYTES
    cicids.BLOCK_BYTES = block
    try:
        if not expected:
            with pytest.raises(DamagedFileError, match=rf"no complete row \({n_dropped} rows"):
                cicids.read(io.BytesIO(data), "file", "y")
            return
        content = cicids.read(io.BytesIO(data), "file", "y")
    finally:
        cicids.BLOCK_BYTES = before
    assert content.X.tolist() == [row for row, _ in expected]
    assert content.y.tolist() == [is_anomaly for _, is_anomaly in expected]
    assert content.n_dropped == n_dropped
    assert content.feature_names == cicids.FEATURES
    assert content.X.flags.c_contiguous


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "missing: 'Flow Duration', 'Total Fwd Packets', 'Total Backward Packets' and 75 more"),
        (HEADER.encode(), "no complete row"),
        (HEADER.replace("Idle Min", "Idle Least").encode(), "missing: 'Idle Min'; unknown: 'Idle Least'"),
        (b"Flow ID," + HEADER.encode(), "missing: none; unknown: 'Flow ID'"),
        (HEADER.replace(" Label", "").encode(), "missing: 'Label'; unknown: "),
        (
            b"\n".join([HEADER.encode(), line(values(0)), line(values(0, bytes="x"))]),
            "line 3, column Flow Bytes/s: 'x'",
        ),
        (b"\n".join([HEADER.encode(), line(values(0)) + b",1"]), "cannot be read as CSV: found more fields"),
    ],
)
def test_a_wrong_file_is_refused(data, message):
    with pytest.raises(DamagedFileError, match=message):
        cicids.read(io.BytesIO(data), "file", "y")


def test_a_wrong_cell_in_a_later_block_is_named_by_its_line(monkeypatch):
    lines = [HEADER.encode(), *[line(values(i)) for i in range(30)], b"", line(values(0, last="?"))]
    monkeypatch.setattr(cicids, "BLOCK_BYTES", 1000)
    with pytest.raises(DamagedFileError, match=r"line 33, column Idle Min: '\?' is not a number"):
        cicids.read(io.BytesIO(b"\n".join(lines)), "file", "y")


def test_the_port_may_be_missing_and_columns_may_be_in_another_order():
    names = [*cicids.FEATURES[1:], "Label", cicids.FEATURES[0]]
    cells = [*range(1, 77), "DDoS", 0]
    content = cicids.read(io.BytesIO(f"{','.join(names)}\n{','.join(map(str, cells))}\n".encode()), "file", "y")
    assert content.X.tolist() == [list(range(77))]
    assert content.y.tolist() == [1]


def test_the_original_is_loaded_by_name(tmp_path, monkeypatch):
    lines = [HEADER.encode(), *[line(*row[:2]) for row in (*WHOLE, *DROPPED)]]
    (tmp_path / "Wednesday-workingHours.pcap_ISCX.csv").write_bytes(b"\n".join(lines))
    with pytest.raises(DamagedFileError, match="must have 691406 rows of 77 features with 251723 anomalies, but has 6"):
        load("cicids", tmp_path)
    monkeypatch.setitem(CATALOGUE, "cicids", replace(CATALOGUE["cicids"], n_rows=6, n_anomalies=4))
    data = load("cicids", tmp_path)
    assert data.n_dropped == len(DROPPED)
    assert data.feature_names == cicids.FEATURES
    assert data.y.tolist() == [is_anomaly for _, _, is_anomaly in WHOLE]


def test_real_flows_written_as_published_are_read_unchanged(data_folder, tmp_path):
    sample = load("cicids-sample", data_folder)
    assert sample.feature_names == cicids.FEATURES
    rows = [
        line(map(repr, row), "DoS Hulk" if label else "BENIGN")
        for row, label in zip(sample.X[:500].tolist(), sample.y[:500], strict=True)
    ]
    content = cicids.read(io.BytesIO(b"\n".join([HEADER.encode(), *rows])), "file", "y")
    assert (sample.X[:500] == content.X).all()
    assert (content.y == sample.y[:500]).all()
    assert content.n_dropped == 0
