"""Bytes from the net: http and https only, of bounded size and time, whole or not at all."""

import http.client
import io
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from imondrian.datasets.dataset import MissingDatasetError

Progress = Callable[[int, int | None], None]
MOST_BYTES = 2**27
SECONDS_SILENT = 30.0  # without a byte
SECONDS_IN_ALL = 900.0
_BLOCK_BYTES = 2**16
_HANDLERS = (  # those for files and FTP are not among them, so that no redirection can lead there
    urllib.request.ProxyHandler,
    urllib.request.UnknownHandler,
    urllib.request.HTTPHandler,
    urllib.request.HTTPSHandler,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPRedirectHandler,
    urllib.request.HTTPErrorProcessor,
)


def fetch(address: str, progress: Progress | None = None) -> bytes:
    """Fetch what is at an address; `progress` is told the bytes that have come, and how many there are if known."""
    if urlsplit(address).scheme not in ("http", "https"):
        raise MissingDatasetError(f"{address}: the address must begin with http:// or https://.")
    try:
        with _opener().open(address, timeout=SECONDS_SILENT) as response:
            return _body(response, address, progress)
    except urllib.error.HTTPError as error:
        error.close()
        raise MissingDatasetError(f"{address} answered {error.code} {error.reason}.") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, MissingDatasetError):
            raise
        raise MissingDatasetError(f"{address} cannot be read: {_reason(error)}.") from None


def _opener() -> urllib.request.OpenerDirector:
    opener = urllib.request.OpenerDirector()
    opener.addheaders = [("User-Agent", "imondrian")]
    for handler in _HANDLERS:
        opener.add_handler(handler())
    return opener


def _body(response: Any, address: str, progress: Progress | None) -> bytes:
    length = response.headers.get("Content-Length", "")
    n_expected = int(length) if length.isdecimal() else None
    if n_expected is not None and n_expected > MOST_BYTES:
        raise MissingDatasetError(f"{address} has {n_expected} bytes, but {MOST_BYTES} are the most that are taken.")
    body, n_read, end = io.BytesIO(), 0, time.monotonic() + SECONDS_IN_ALL
    while block := response.read1(_BLOCK_BYTES):  # what has come, be it one byte: read would wait for all of them
        n_read += body.write(block)
        if progress is not None:
            progress(n_read, n_expected)
        if n_read > MOST_BYTES:
            raise MissingDatasetError(f"{address} has more than {MOST_BYTES} bytes, the most that are taken.")
        if time.monotonic() > end:
            raise MissingDatasetError(f"{address} took more than {SECONDS_IN_ALL:g} seconds.")
    if n_expected is not None and n_read != n_expected:
        raise MissingDatasetError(f"{address} was cut off: {n_expected} bytes were expected, but {n_read} came.")
    return body.getvalue()


def _reason(error: Exception) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return str(reason) or type(reason).__name__
