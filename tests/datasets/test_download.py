"""Downloads are checked and cached; a failed download leaves no file and raises one clear error."""

import io
import socket
import threading

import numpy as np
import pytest

from imondrian.datasets import MissingDatasetError, checksum, download, load
from imondrian.datasets.folders import cache_folder

from .conftest import LABELS, POINTS


def archive(X=POINTS, y=LABELS):
    file = io.BytesIO()
    np.savez(file, X=X, y=y)
    return file.getvalue()


def cached_files():
    return sorted(path.name for path in cache_folder().iterdir()) if cache_folder().exists() else []


def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_download_is_checked_cached_and_not_repeated(site, made_up, tmp_path):
    made_up(urls=(site.serve("/up.npz?dl=1", archive()),))
    first = load("made-up", tmp_path)
    second = load("made-up")
    third = load("made-up", download=False)
    for data in (first, second, third):
        assert (data.X == POINTS).all()
        assert (data.y == LABELS).all()
    assert cached_files() == ["made-up.npz"]
    assert site.requested == ["/up.npz?dl=1"]
    assert list(tmp_path.iterdir()) == []


def test_progress_is_reported(site, made_up):
    body, calls = archive(np.zeros((9000, 3)), np.zeros(9000)), []
    made_up(urls=(site.serve("/up.npz", body),))
    with pytest.raises(MissingDatasetError):
        load("made-up", progress=lambda n_read, n_expected: calls.append((n_read, n_expected)))
    assert len(calls) > 1
    assert [n for n, _ in calls] == sorted({n for n, _ in calls})
    assert {n for _, n in calls} == {len(body)}
    assert calls[-1][0] == len(body)


def test_a_redirect_is_followed(site, made_up):
    target = site.serve("/there.npz", archive())
    made_up(urls=(site.serve("/here.npz", status=302, Location=target),))
    assert (load("made-up").X == POINTS).all()
    assert site.requested == ["/here.npz", "/there.npz"]


def test_the_next_url_is_tried_if_one_fails(site, made_up):
    wrong, gone, right = (
        site.serve("/wrong.npz", archive(POINTS + 1.0)),
        site.serve("/gone.npz", status=404),
        site.serve("/right.npz", archive()),
    )
    made_up(urls=(wrong, gone, right))
    assert (load("made-up").X == POINTS).all()
    assert site.requested == ["/wrong.npz", "/gone.npz", "/right.npz"]


def failing(site):
    """Return URLs that fail, with the error message of each."""
    other = POINTS + 1.0
    page = b"<html>Log in</html>"
    return {
        site.serve("/wrong.npz", archive(other)): checksum(other, LABELS),
        site.serve("/small.npz", archive(POINTS[:5], LABELS[:5])): "has 5 rows of 3 features with 1 anomalies",
        site.serve("/cut.npz", archive()[:-40], length=len(archive())): f"{len(archive())} bytes were expected, but",
        site.serve("/short.npz", archive()[:-40]): "not a NumPy archive",
        site.serve("/gone.npz", b"gone", status=404): "responded with 404 Not Found",
        site.serve("/broken.npz", b"sorry", status=500): "responded with 500",
        site.serve("/page.npz", page): "not a NumPy archive",
        site.serve("/page.mat", page): "not a valid MATLAB file",
        site.serve("/page.csv", page): "has one column",
        site.serve("/page.html", page): "must end in .npz, .mat or .csv",
        site.serve("/huge.npz", length=2**40): f"bytes, but has {2**40}",
        site.serve("/file.npz", status=302, Location="file:///etc/hostname"): "responded with 302",
        site.serve("/ftp.npz", status=302, Location="ftp://127.0.0.1/up.npz"): "unknown url type: ftp",
        site.serve("/round.npz", status=302, Location="/round.npz"): "redirect",
        f"http://127.0.0.1:{closed_port()}/up.npz": "refused",
        "file:///etc/hostname.npz": "must start with http:// or https://",
        "ftp://127.0.0.1/up.npz": "must start with http:// or https://",
        "up.npz": "must start with http:// or https://",
        "http:///up.npz": "no host",
        "http://127.0.0.1:port/up.npz": "cannot be read",
    }


def test_a_failure_leaves_no_file_and_raises_one_clear_error(site, made_up):
    for address, message in failing(site).items():
        entry = made_up(urls=(address,))
        with pytest.raises(MissingDatasetError) as caught:
            load("made-up")
        for part in (address, message, entry.page, "made/up (.npz, .mat, .csv)", "IMONDRIAN_DATA"):
            assert part in str(caught.value)
        assert cached_files() == []


def test_all_failures_are_reported_together(site, made_up):
    addresses = failing(site)
    made_up(urls=tuple(addresses))
    with pytest.raises(MissingDatasetError) as caught:
        load("made-up")
    assert all(part in str(caught.value) for pair in addresses.items() for part in pair)


def test_a_failure_does_not_change_the_cache(site, made_up):
    made_up(urls=(site.serve("/up.npz", archive()),))
    load("made-up")
    before = (cache_folder() / "made-up.npz").read_bytes()
    made_up(urls=(site.serve("/up.npz", archive()),), checksum=checksum(POINTS + 1.0, LABELS))
    with pytest.raises(MissingDatasetError):
        load("made-up")
    assert (cache_folder() / "made-up.npz").read_bytes() == before


@pytest.mark.parametrize("damage", [lambda raw: raw[:-7], lambda _raw: b"", lambda raw: raw[:200] + raw[201:]])
def test_a_damaged_cached_file_is_downloaded_again(site, made_up, damage):
    made_up(urls=(site.serve("/up.npz", archive()),))
    load("made-up")
    path = cache_folder() / "made-up.npz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(MissingDatasetError, match="download=False"):
        load("made-up", download=False)
    assert (load("made-up").X == POINTS).all()
    assert (load("made-up", download=False).X == POINTS).all()
    assert len(site.requested) == 2


def test_a_body_of_unknown_length_is_limited_in_size(site, made_up, monkeypatch):
    def send_endlessly(handler):
        handler.send_response(200)
        handler.end_headers()
        for _ in range(100):
            handler.wfile.write(b"x" * 2**16)

    site.handlers["/send_endlessly.npz"] = send_endlessly
    monkeypatch.setattr(download, "MAX_BYTES", 2**17)
    made_up(urls=(site.address + "/send_endlessly.npz",))
    with pytest.raises(MissingDatasetError, match=f"at most {2**17} bytes, but has more"):
        load("made-up")


def test_a_silent_server_times_out(site, made_up, monkeypatch):
    done = threading.Event()
    site.handlers["/silent.npz"] = lambda _handler: done.wait(20)
    monkeypatch.setattr(download, "READ_TIMEOUT", 0.2)
    made_up(urls=(site.address + "/silent.npz",))
    try:
        with pytest.raises(MissingDatasetError, match="timed out"):
            load("made-up")
    finally:
        done.set()


def test_a_slow_download_times_out(site, made_up, monkeypatch):
    monkeypatch.setattr(download, "TOTAL_TIMEOUT", -1.0)
    made_up(urls=(site.serve("/up.npz", archive()),))
    with pytest.raises(MissingDatasetError, match="took more than -1 seconds"):
        load("made-up")


def test_a_download_byte_by_byte_times_out(site, made_up, monkeypatch):
    done = threading.Event()

    def send_slowly(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        for _ in range(40):
            handler.wfile.write(b"x")
            if done.wait(0.02):
                return
        done.wait(20)  # a client that waits for a full block would time out here instead

    site.handlers["/send_slowly.npz"] = send_slowly
    monkeypatch.setattr(download, "TOTAL_TIMEOUT", 0.1)
    monkeypatch.setattr(download, "READ_TIMEOUT", 3.0)
    made_up(urls=(site.address + "/send_slowly.npz",))
    try:
        with pytest.raises(MissingDatasetError, match=r"took more than 0\.1 seconds"):
            load("made-up")
    finally:
        done.set()


def test_an_unwritable_cache_gives_a_warning(site, made_up, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("IMONDRIAN_CACHE", str(tmp_path / "file" / "cache"))
    made_up(urls=(site.serve("/up.npz", archive()),))
    with pytest.warns(UserWarning, match="cannot be written, so the data set will be downloaded again"):
        data = load("made-up")
    assert (data.X == POINTS).all()


def test_an_original_file_is_read_by_its_own_reader(site, made_up):
    times = [f"2014-10-30 {hour:02}:{minute:02}:00" for hour in range(24) for minute in (0, 15, 30, 45)]
    lines = ["timestamp,value", *(f"{time},{i}" for i, time in enumerate(times))]
    X = np.lib.stride_tricks.sliding_window_view(np.arange(96.0), 48)
    y = np.array([time >= "2014-10-30 15:30:00" for time in times[47:]]).astype(np.uint8)
    made_up(
        n_rows=49,
        n_features=48,
        n_anomalies=int(y.sum()),
        checksum=checksum(X, y),
        original="nab/taxi.csv",
        original_reader="taxi",
        urls=(site.serve("/some/taxi.csv", "\n".join(lines).encode()),),
    )
    assert 0 < y.sum() < 49
    assert (load("made-up").X == X).all()
    assert (load("made-up", download=False).y == y).all()


def test_a_full_disk_leaves_no_partial_file(site, made_up, monkeypatch):
    def write_half(file, **_arrays):
        file.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez_compressed", write_half)
    made_up(urls=(site.serve("/up.npz", archive()),))
    with pytest.warns(UserWarning, match="no space left"):
        load("made-up")
    assert cached_files() == []
