"""What is downloaded is checked and kept; what fails leaves nothing behind but one clear error."""

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


def kept():
    return sorted(path.name for path in cache_folder().iterdir()) if cache_folder().exists() else []


def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_download_is_checked_kept_and_not_repeated(site, made_up, tmp_path):
    made_up(addresses=(site.answer("/up.npz?dl=1", archive()),))
    first = load("made-up", tmp_path)
    second = load("made-up")
    third = load("made-up", download=False)
    for data in (first, second, third):
        assert (data.X == POINTS).all()
        assert (data.y == LABELS).all()
    assert kept() == ["made-up.npz"]
    assert site.asked == ["/up.npz?dl=1"]
    assert list(tmp_path.iterdir()) == []


def test_progress_is_told(site, made_up):
    body, calls = archive(np.zeros((9000, 3)), np.zeros(9000)), []
    made_up(addresses=(site.answer("/up.npz", body),))
    with pytest.raises(MissingDatasetError):
        load("made-up", progress=lambda n_read, n_expected: calls.append((n_read, n_expected)))
    assert len(calls) > 1
    assert [n for n, _ in calls] == sorted({n for n, _ in calls})
    assert {n for _, n in calls} == {len(body)}
    assert calls[-1][0] == len(body)


def test_a_redirection_is_followed(site, made_up):
    target = site.answer("/there.npz", archive())
    made_up(addresses=(site.answer("/here.npz", status=302, Location=target),))
    assert (load("made-up").X == POINTS).all()
    assert site.asked == ["/here.npz", "/there.npz"]


def test_the_next_address_is_asked_when_one_fails(site, made_up):
    wrong, gone, right = (
        site.answer("/wrong.npz", archive(POINTS + 1.0)),
        site.answer("/gone.npz", status=404),
        site.answer("/right.npz", archive()),
    )
    made_up(addresses=(wrong, gone, right))
    assert (load("made-up").X == POINTS).all()
    assert site.asked == ["/wrong.npz", "/gone.npz", "/right.npz"]


def failing(site):
    """Give addresses that fail, and what is said of each."""
    other = POINTS + 1.0
    page = b"<html>Log in</html>"
    return {
        site.answer("/wrong.npz", archive(other)): checksum(other, LABELS),
        site.answer("/small.npz", archive(POINTS[:5], LABELS[:5])): "has 5 rows of 3 features with 1 anomalies",
        site.answer("/cut.npz", archive()[:-40], length=len(archive())): f"{len(archive())} bytes were expected, but",
        site.answer("/short.npz", archive()[:-40]): "not a NumPy archive",
        site.answer("/gone.npz", b"gone", status=404): "responded with 404 Not Found",
        site.answer("/broken.npz", b"sorry", status=500): "responded with 500",
        site.answer("/page.npz", page): "not a NumPy archive",
        site.answer("/page.mat", page): "not a valid MATLAB file",
        site.answer("/page.csv", page): "has one column",
        site.answer("/page.html", page): "must end in .npz, .mat, .csv",
        site.answer("/huge.npz", length=2**40): f"bytes, but has {2**40}",
        site.answer("/file.npz", status=302, Location="file:///etc/hostname"): "responded with 302",
        site.answer("/ftp.npz", status=302, Location="ftp://127.0.0.1/up.npz"): "unknown url type: ftp",
        site.answer("/round.npz", status=302, Location="/round.npz"): "redirect",
        f"http://127.0.0.1:{closed_port()}/up.npz": "refused",
        "file:///etc/hostname.npz": "must start with http:// or https://",
        "ftp://127.0.0.1/up.npz": "must start with http:// or https://",
        "up.npz": "must start with http:// or https://",
        "http:///up.npz": "no host",
        "http://127.0.0.1:port/up.npz": "cannot be read",
    }


def test_a_failure_leaves_nothing_and_is_one_clear_error(site, made_up):
    for address, complaint in failing(site).items():
        entry = made_up(addresses=(address,))
        with pytest.raises(MissingDatasetError) as caught:
            load("made-up")
        for part in (address, complaint, entry.page, "made/up (.npz, .mat, .csv)", "IMONDRIAN_DATA"):
            assert part in str(caught.value)
        assert kept() == []


def test_all_failures_are_told_together(site, made_up):
    addresses = failing(site)
    made_up(addresses=tuple(addresses))
    with pytest.raises(MissingDatasetError) as caught:
        load("made-up")
    assert all(part in str(caught.value) for pair in addresses.items() for part in pair)


def test_a_failure_does_not_touch_what_was_kept(site, made_up):
    made_up(addresses=(site.answer("/up.npz", archive()),))
    load("made-up")
    before = (cache_folder() / "made-up.npz").read_bytes()
    made_up(addresses=(site.answer("/up.npz", archive()),), checksum=checksum(POINTS + 1.0, LABELS))
    with pytest.raises(MissingDatasetError):
        load("made-up")
    assert (cache_folder() / "made-up.npz").read_bytes() == before


@pytest.mark.parametrize("damage", [lambda raw: raw[:-7], lambda _raw: b"", lambda raw: raw[:200] + raw[201:]])
def test_a_kept_file_that_is_damaged_is_fetched_again(site, made_up, damage):
    made_up(addresses=(site.answer("/up.npz", archive()),))
    load("made-up")
    path = cache_folder() / "made-up.npz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(MissingDatasetError, match="downloads are not allowed"):
        load("made-up", download=False)
    assert (load("made-up").X == POINTS).all()
    assert (load("made-up", download=False).X == POINTS).all()
    assert len(site.asked) == 2


def test_more_than_was_announced_is_not_read_on_and_on(site, made_up, monkeypatch):
    def pour(handler):
        handler.send_response(200)
        handler.end_headers()
        for _ in range(100):
            handler.wfile.write(b"x" * 2**16)

    site.answers["/pour.npz"] = pour
    monkeypatch.setattr(download, "MAX_BYTES", 2**17)
    made_up(addresses=(site.address + "/pour.npz",))
    with pytest.raises(MissingDatasetError, match=f"at most {2**17} bytes, but has more"):
        load("made-up")


def test_silence_comes_to_an_end(site, made_up, monkeypatch):
    done = threading.Event()
    site.answers["/silent.npz"] = lambda _handler: done.wait(20)
    monkeypatch.setattr(download, "READ_TIMEOUT", 0.2)
    made_up(addresses=(site.address + "/silent.npz",))
    try:
        with pytest.raises(MissingDatasetError, match="timed out"):
            load("made-up")
    finally:
        done.set()


def test_a_trickle_comes_to_an_end(site, made_up, monkeypatch):
    monkeypatch.setattr(download, "TOTAL_TIMEOUT", -1.0)
    made_up(addresses=(site.answer("/up.npz", archive()),))
    with pytest.raises(MissingDatasetError, match="took more than -1 seconds"):
        load("made-up")


def test_drops_are_held_against_the_limit_as_they_come(site, made_up, monkeypatch):
    done = threading.Event()

    def drip(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        for _ in range(40):
            handler.wfile.write(b"x")
            if done.wait(0.02):
                return
        done.wait(20)  # who waits for a full block ends in silence, and says so

    site.answers["/drip.npz"] = drip
    monkeypatch.setattr(download, "TOTAL_TIMEOUT", 0.1)
    monkeypatch.setattr(download, "READ_TIMEOUT", 3.0)
    made_up(addresses=(site.address + "/drip.npz",))
    try:
        with pytest.raises(MissingDatasetError, match=r"took more than 0\.1 seconds"):
            load("made-up")
    finally:
        done.set()


def test_a_cache_that_cannot_be_written_costs_a_warning(site, made_up, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("IMONDRIAN_CACHE", str(tmp_path / "file" / "cache"))
    made_up(addresses=(site.answer("/up.npz", archive()),))
    with pytest.warns(UserWarning, match="cannot be written, so it will be downloaded again"):
        data = load("made-up")
    assert (data.X == POINTS).all()


def test_an_original_is_read_by_its_own_reader(site, made_up):
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
        addresses=(site.answer("/some/taxi.csv", "\n".join(lines).encode()),),
    )
    assert 0 < y.sum() < 49
    assert (load("made-up").X == X).all()
    assert (load("made-up", download=False).y == y).all()


def test_a_disk_that_fills_up_leaves_no_half_file(site, made_up, monkeypatch):
    def write_half(file, **_arrays):
        file.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez_compressed", write_half)
    made_up(addresses=(site.answer("/up.npz", archive()),))
    with pytest.warns(UserWarning, match="no space left"):
        load("made-up")
    assert kept() == []
