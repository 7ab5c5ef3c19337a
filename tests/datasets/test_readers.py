"""The same data are read from every file format, and errors say what is wrong with a file."""

import gzip
import io
import struct
import tracemalloc
import zlib
from functools import partial
from zipfile import ZIP_BZIP2, ZipFile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.lib import format as npy_format
from scipy.io import loadmat, savemat

from imondrian.base.errors import DamagedFileError
from imondrian.datasets import CATALOGUE, checksum, csv_files, load, mat_files, npz_files, taxi
from imondrian.datasets.content import MAX_BYTES, Content, as_content

NUMBERS = st.floats(allow_nan=False, allow_infinity=False).map(lambda x: x + 0.0)  # no -0.0: text may lose its sign


@st.composite
def contents(draw):
    n_rows, n_features = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    X = draw(arrays(np.float64, (n_rows, n_features), elements=NUMBERS))
    y = draw(arrays(np.uint8, n_rows, elements=st.integers(0, 1)))
    return X, y


def as_npz(X, y):
    file = io.BytesIO()
    np.savez(file, X=np.asfortranarray(X), y=y.astype(np.int64))
    return file


def as_mat(X, y):
    file = io.BytesIO()
    savemat(file, {"X": X, "y": y.astype(np.float64).reshape(-1, 1)}, do_compression=True)
    return file


def as_csv(X, y):
    lines = [",".join(f"feature {j}" for j in range(X.shape[1])) + ",outlier"]
    lines += [",".join([*map(repr, map(float, row)), str(int(label))]) for row, label in zip(X, y, strict=True)]
    return io.BytesIO("\n".join(lines).encode())


@given(data=contents())
def test_the_checksum_does_not_depend_on_the_file_format(data):
    X, y = data
    expected = checksum(X, y)
    for read, file in [(npz_files.read, as_npz(X, y)), (mat_files.read, as_mat(X, y)), (csv_files.read, as_csv(X, y))]:
        file.seek(0)
        content = read(file, "file", "y")
        assert checksum(content.X, content.y) == expected


@given(data=contents(), i=st.integers(0, 5), j=st.integers(0, 3))
def test_the_checksum_depends_on_every_value_and_label(data, i, j):
    X, y = data
    i, j = i % X.shape[0], j % X.shape[1]
    other, relabelled = X.copy(), y.copy()
    other[i, j] = np.nextafter(X[i, j], 0.5 if X[i, j] != 0.5 else 1.0)
    relabelled[i] ^= 1
    assert len({checksum(X, y), checksum(other, y), checksum(X, relabelled)}) == 3


def test_the_checksum_depends_on_the_shape():
    values = np.arange(6.0)
    assert checksum(values.reshape(2, 3), np.zeros(2)) != checksum(values.reshape(3, 2), np.zeros(3)[:2])


def test_the_checksum_never_changes():
    # computed separately: struct.pack("<2q4d2B", 2, 2, 0.0, 1.0, 2.0, 3.0, 0, 1)
    assert checksum(np.arange(4.0).reshape(2, 2), np.array([0, 1])) == (
        "c2322b0bcc8da7559d03533a0b081b91ae0ca6c7fc2dd19cd08b9dd2f956e88a"
    )


@given(
    data=contents(),
    kind=st.sampled_from(["b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]),
    is_compressed=st.booleans(),
    others=st.lists(st.sampled_from(["text", [1, 2], {"X": 5}, np.eye(2), 3j]), max_size=2),
)
def test_matlab_files_are_read_like_scipy_does(data, kind, is_compressed, others):
    X = (data[0] % 100.0).astype(kind)
    file = io.BytesIO()
    variables = {f"other{i}": other for i, other in enumerate(others)}
    savemat(file, {**variables, "X": X, "y": data[1].astype(kind)}, do_compression=is_compressed)
    content, expected = mat_files.read(io.BytesIO(file.getvalue()), "file", "y"), loadmat(file)
    assert (expected["X"] == content.X).all()
    assert (content.y == expected["y"].ravel()).all()
    assert content.X.flags.carray


@pytest.mark.parametrize("endian", ["<", ">"])
def test_matlab_numbers_stored_in_narrower_types_are_read(endian):
    def element(kind, data):
        n = len(data)
        if 0 < n <= 4:  # the short form
            return struct.pack(f"{endian}I", n << 16 | kind) + data.ljust(4, b"\0")
        return struct.pack(f"{endian}2I", kind, n) + data + b"\0" * (-n % 8)

    def double(name, shape, numbers):
        parts = [
            element(6, struct.pack(f"{endian}2I", 6, 0)),
            element(5, struct.pack(f"{endian}2i", *shape)),
            element(1, name),
            element(2, bytes(numbers)),
        ]
        return element(14, b"".join(parts))

    header = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack(f"{endian}H", 0x0100) + (b"IM" if endian == "<" else b"MI")
    data = header + double(b"X", (3, 2), [1, 2, 3, 4, 5, 6]) + double(b"y", (3, 1), [0, 0, 1])
    assert loadmat(io.BytesIO(data))["X"].tolist() == [[1, 4], [2, 5], [3, 6]]
    content = mat_files.read(io.BytesIO(data), "file", "y")
    assert content.X.tolist() == [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]
    assert content.y.tolist() == [0, 0, 1]


def peak_bytes_of_refused(read, data):
    """Read data that must be refused for its size; return the peak number of bytes in use."""
    read(
        io.BytesIO(as_npz(ONE, np.ones(2)).getvalue() if read is npz_files.read else mat(X=ONE, y=np.ones(2))), "", "y"
    )
    tracemalloc.start()
    try:
        with pytest.raises(DamagedFileError, match=r"^the file .*must expand to at most"):
            read(io.BytesIO(data), "the file", "y")
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["X", "y", "feature_names"])
@pytest.mark.parametrize("kind", ["f8", "u1", "U9"])
def test_the_size_of_an_archive_is_checked_before_it_is_decompressed(name, kind, monkeypatch):
    large = np.zeros(10**6, dtype=kind)
    file = io.BytesIO()
    np.savez_compressed(file, **{"X": ONE, "y": np.ones(2), name: large})
    assert len(file.getvalue()) < 10**5
    monkeypatch.setattr(npz_files, "MAX_BYTES", 2 * 10**6)
    assert peak_bytes_of_refused(npz_files.read, file.getvalue()) < 10**6


def test_the_size_limit_applies_to_all_arrays_of_an_archive_together(monkeypatch):
    data = npz(X=np.zeros((1000, 9)), y=np.zeros(1000))
    monkeypatch.setattr(npz_files, "MAX_BYTES", 80_256)  # with two headers
    assert len(npz_files.read(io.BytesIO(data), "file", "y").X) == 1000
    monkeypatch.setattr(npz_files, "MAX_BYTES", 80_255)
    assert peak_bytes_of_refused(npz_files.read, data) < 80_000


@pytest.mark.parametrize("shape", [(10**12,), (2**32, 2**32), (10**400,)])
def test_huge_declared_shapes_are_refused_without_allocating_memory(shape):
    for kind in ("<f8", "<U0"):
        file = io.BytesIO()
        with ZipFile(file, "w") as archive:
            for name in ("X", "y", "feature_names"):
                with archive.open(f"{name}.npy", "w") as member:
                    npy_format.write_array_header_2_0(member, {"descr": kind, "fortran_order": False, "shape": shape})
        assert peak_bytes_of_refused(npz_files.read, file.getvalue()) < 10**6


@pytest.mark.parametrize("ending", [b"(, }", b")[, ", b"),[}"])
def test_a_header_that_cannot_be_parsed_is_refused(ending):
    # so large that the checksum of a member is verified only after its header was read
    data = npz(X=np.zeros((1000, 9)), y=np.zeros(1000))
    with pytest.raises(DamagedFileError, match="not a NumPy archive"):
        npz_files.read(io.BytesIO(data.replace(b"), }", ending)), "file", "y")


def test_compression_methods_without_a_size_limit_are_refused():
    file = io.BytesIO()
    with ZipFile(file, "w", ZIP_BZIP2) as archive:
        archive.writestr("X.npy", npy())
        archive.writestr("y.npy", npy())
    with pytest.raises(DamagedFileError, match=r"\.npy uses a compression method that NumPy does not write"):
        npz_files.read(file, "file", "y")


def test_the_largest_set_is_within_the_size_limit():
    largest = max(CATALOGUE.values(), key=lambda entry: entry.n_rows * entry.n_features)
    assert 8 * largest.n_rows * (largest.n_features + 1) < MAX_BYTES


def test_a_decompression_bomb_is_not_expanded(monkeypatch):
    file = as_mat(np.zeros((10**5, 20)), np.zeros(10**5))
    monkeypatch.setattr(mat_files, "MAX_BYTES", 10**6)
    assert peak_bytes_of_refused(mat_files.read, file.getvalue()) < 3 * 10**6


def test_the_size_limit_applies_to_all_variables_of_a_matlab_file_together(monkeypatch):
    names = ("X", "y", *(f"other{i}" for i in range(50)))
    file = io.BytesIO()
    savemat(file, dict.fromkeys(names, np.zeros(10**5)), do_compression=True)
    monkeypatch.setattr(mat_files, "MAX_BYTES", 2 * 10**6)
    assert peak_bytes_of_refused(mat_files.read, file.getvalue()) < 5 * 10**6


def test_narrow_numbers_of_a_matlab_file_count_as_float64(monkeypatch):
    file = io.BytesIO()
    savemat(file, {"X": np.zeros((10**5, 10), dtype=np.uint8), "y": np.zeros(10**5)}, do_compression=True)
    monkeypatch.setattr(mat_files, "MAX_BYTES", 4 * 10**6)
    assert peak_bytes_of_refused(mat_files.read, file.getvalue()) < 5 * 10**6


@pytest.mark.parametrize("is_in_a_variable", [True, False])
def test_a_matlab_file_of_empty_elements_needs_little_memory(is_in_a_variable):
    n_bytes = 8 * 10**5
    inner = struct.pack("<2I", 14, n_bytes) if is_in_a_variable else b""
    compressed = zlib.compress(inner + bytes(n_bytes))
    data = mat()[:128] + struct.pack("<2I", 15, len(compressed)) + compressed
    tracemalloc.start()
    try:
        with pytest.raises(DamagedFileError):
            mat_files.read(io.BytesIO(data), "file", "y")
        assert tracemalloc.get_traced_memory()[1] < 4 * n_bytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("compress", [gzip.compress, *(partial(zlib.compress, level=level) for level in (1, 6, 9))])
def test_compressed_csv_is_refused(compress):
    with pytest.raises(DamagedFileError, match="the file must be CSV text, but is compressed"):
        csv_files.read(io.BytesIO(compress(b"a,y\n1,0\n2,1\n")), "the file", "y")


@given(data=contents())
def test_archives_are_read_back_unchanged(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("a") / "new" / "a.npz"
    names = tuple(f"x{j}" for j in range(data[0].shape[1]))
    npz_files.write(path, Content(*data, names))
    content = npz_files.read(path, "a", "y")
    assert (data[0] == content.X).all()
    assert (content.y == data[1]).all()
    assert content.feature_names == names
    assert [file.name for file in path.parent.iterdir()] == ["a.npz"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,y,b\n1,1,2\n3,0,4\n", ("a", "b")),
        ("a,Label,b\r\n1,1,2\r\n3,0,4\r\n", ("a", "b")),
        ('\ufeff"a","b","is anomaly"\n1,2,1\n3,4,0', ("a", "b")),
        ("1,2,1\n3,4,0\n", None),
        ("1 , 2, 1.0\n 3,4,0.0\n", None),
        ("a,a,nab\n1,2,1\n3,4,0\n", ("a", "a")),
    ],
)
def test_the_label_column_of_csv_is_found(text, names):
    content = csv_files.read(io.BytesIO(text.encode()), "t", "nab")
    assert content.X.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert content.y.tolist() == [1, 0]
    assert content.feature_names == names


def npz(**arrays_of):
    file = io.BytesIO()
    np.savez(file, **arrays_of)
    return file.getvalue()


def npy():
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


def mat(**variables):
    file = io.BytesIO()
    savemat(file, variables)
    return file.getvalue()


def mat4():
    file = io.BytesIO()
    savemat(file, {"X": ONE, "y": ONE}, format="4")
    return file.getvalue()


ONE, OBJECTS = np.ones((2, 1)), np.array([{}, {}], dtype=object)


@pytest.mark.parametrize(
    ("read", "data", "message"),
    [
        (npz_files.read, b"", "not a NumPy archive"),
        (npz_files.read, b"PK\x03\x04 and more", "not a NumPy archive"),
        (npz_files.read, npz(X=ONE, y=np.ones(2))[:-30], "not a NumPy archive"),
        (npz_files.read, b"\x80\x04K\x01.", "not a NumPy archive"),  # a pickle
        (npz_files.read, npz(X=OBJECTS, y=np.ones(2)), "not a NumPy archive of plain arrays: Object arrays"),
        (npz_files.read, npy(), "not a NumPy archive of plain arrays: File is not a zip file"),
        (npz_files.read, npz(), r"must contain the arrays X and y, but contains none"),
        (npz_files.read, npz(data=ONE, y=np.ones(2)), r"must contain the arrays X and y, but contains \['data', 'y'\]"),
        (npz_files.read, npz(X=ONE, y=np.ones(2), feature_names=["a", "b"]), "has 1 features, but 2 feature names"),
        (npz_files.read, npz(X=ONE, y=np.ones(3)), "has 2 rows, but 3 labels"),
        (npz_files.read, npz(X=np.ones(2), y=np.ones(2)), r"X must be a table .* but its shape is \(2,\)"),
        (npz_files.read, npz(X=np.ones((0, 2)), y=np.ones(0)), r"X must be a table .* but its shape is \(0, 2\)"),
        (npz_files.read, npz(X=np.array([["a"]]), y=np.ones(1)), "X must be numbers, but its type is <U1"),
        (npz_files.read, npz(X=ONE * np.nan, y=np.ones(2)), r"X\[0, 0\] is nan: values must be finite"),
        (npz_files.read, npz(X=ONE, y=np.array([1, 2])), r"labels must be 0 \(normal\) or 1 \(anomaly\), but one is 2"),
        (npz_files.read, npz(X=ONE, y=np.ones((2, 2))), r"labels must be one-dimensional, but their shape is \(2, 2\)"),
        (npz_files.read, npz(X=ONE, y=np.array(["n", "o"])), "labels must be numbers, but their type is <U1"),
        (mat_files.read, b"", "not a valid MATLAB file: it has no header of version 5"),
        (mat_files.read, mat4(), "it has no header of version 5"),
        (
            mat_files.read,
            mat(X=ONE)[:128] + b"\x0f\0\0\0\xff\0\0\0rubbish",
            "an element of 255 bytes extends beyond the end",
        ),
        (mat_files.read, as_mat(ONE, np.ones(2)).getvalue()[:-20], "extends beyond the end"),
        (mat_files.read, mat(X=ONE)[:128] + b"\x0e\0\0\0\0\0\0\0", "a variable has no name"),
        (
            mat_files.read,
            mat(X=ONE).replace(struct.pack("<2i", 2, 1), struct.pack("<2i", 2, 3)),
            r"fill the shape \(2, 3\)",
        ),
        (mat_files.read, mat(X=ONE).replace(struct.pack("<2i", 2, 1), struct.pack("<2i", -2, -1)), r"shape \(-2, -1\)"),
        (
            mat_files.read,
            mat(X=ONE).replace(struct.pack("<2I", 9, 16), struct.pack("<2I", 8, 16)),
            "cannot be of kind 8",
        ),
        (mat_files.read, mat(X=ONE * 1j, y=np.ones(2)), "must contain the variable X, as an array of real numbers"),
        (mat_files.read, mat(X="text", y=np.ones(2)), "must contain the variable X, as an array of real numbers"),
        (mat_files.read, mat(X=ONE, y={"a": 1}), "must contain the variable y, as an array of real numbers"),
        (mat_files.read, mat(X=ONE, z=ONE, label=ONE), "must contain the variable y, but contains X, z, label"),
        (mat_files.read, mat(), "must contain the variable X, but contains nothing"),
        (mat_files.read, mat(X=np.ones((2, 2, 2)), y=np.ones(2)), r"X must be a table .* shape is \(2, 2, 2\)"),
        (mat_files.read, b"MATLAB 7.3 MAT-file" + b" " * 105 + b"\x00\x02IM" + b"\0" * 600, r"version 7.3 \(HDF5\)"),
        (csv_files.read, b"", "cannot be read as CSV"),
        (csv_files.read, b"a\n1\n", "has one column"),
        (csv_files.read, b"a;y\n1;0\n", "has one column"),
        (csv_files.read, b"a,y\n", r"its shape is \(0, 1\)"),
        (csv_files.read, b"a,y\n1,0\n2,1,3\n", "cannot be read as CSV: found more fields"),
        (csv_files.read, b"a,y\n1,0\ntwo,1\n", "line 3, column 1: 'two' is not a number"),
        (csv_files.read, b"1,0\n2,\n", "line 2, column 2: None is not a number"),
        (csv_files.read, b"a,y\n1,0\n2,0.5\n", "labels must be 0 .* one is 0.5"),
        (csv_files.read, b"a,y\n1,0\ninf,1\n", "is inf: values must be finite"),
        (taxi.read, b"", "at least 48 rows, but has 0"),
        (taxi.read, b"time,value\n1,2\n", "the columns timestamp and value: KeyError"),
        (taxi.read, b"timestamp,value\n1,two\n", "the columns timestamp and value: ValueError"),
        (taxi.read, b"timestamp,value\n1\n", "the columns timestamp and value: TypeError"),
        (taxi.read, b"\xff", "the columns timestamp and value: UnicodeDecodeError"),
    ],
)
def test_a_wrong_file_raises_with_the_reason(read, data, message):
    with pytest.raises(DamagedFileError, match=message) as caught:
        read(io.BytesIO(data), "the file", "y")
    assert str(caught.value).startswith("the file")


@given(data=contents(), damage=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), min_size=1, max_size=5))
def test_damaged_files_are_refused_or_give_valid_content(data, damage):
    for read, file in [(npz_files.read, as_npz(*data)), (mat_files.read, as_mat(*data))]:
        raw = bytearray(file.getvalue())
        for place, byte in damage:
            raw[place % len(raw)] = byte
        try:
            content = read(io.BytesIO(raw), "file", "y")
        except DamagedFileError:
            continue
        assert np.isfinite(content.X).all()
        assert len(content.X) == len(content.y)


def test_labels_may_be_a_single_row_or_column():
    for y in (np.array([[0, 1]]), np.array([[0], [1]]), [0.0, 1.0], [False, True]):
        assert as_content(np.eye(2), y, "file").y.tolist() == [0, 1]
    assert as_content([[1]], [[1]], "file").y.tolist() == [1]


def test_the_taxi_series_gives_the_same_points_as_the_archive(data_folder, tmp_path):
    (tmp_path / "nab").mkdir()
    (tmp_path / "nab" / "nyc_taxi.csv").write_bytes((data_folder / "nab" / "nyc_taxi.csv").read_bytes())
    data = load("nyc-taxi", tmp_path, download=False)  # the checksum is that of the archive
    assert data.X[0, :2].tolist() == [10844.0, 8127.0]
    assert (data.X[1:, 0] == data.X[:-1, 1]).all()
