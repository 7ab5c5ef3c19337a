"""Download complete files over http and https, with limits on size and time."""

import http.client
import io
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from imondrian.datasets.dataset import MissingDatasetError

DownloadProgress = Callable[[int, int | None], None]
MAX_BYTES = 2**27
READ_TIMEOUT = 30.0  # seconds without receiving a byte
TOTAL_TIMEOUT = 900.0  # seconds
_BLOCK_BYTES = 2**16
_HANDLERS = (  # without those for files and FTP, so that no redirect can lead there
    urllib.request.ProxyHandler,
    urllib.request.UnknownHandler,
    urllib.request.HTTPHandler,
    urllib.request.HTTPSHandler,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPRedirectHandler,
    urllib.request.HTTPErrorProcessor,
)


def fetch(url: str, progress: DownloadProgress | None = None) -> bytes:
    """Download a URL; `progress` is called with the numbers of bytes received and in total (None if not known)."""
    if urlsplit(url).scheme not in ("http", "https"):
        raise MissingDatasetError(f"{url}: the URL must start with http:// or https://.")
    try:
        with _opener().open(url, timeout=READ_TIMEOUT) as response:
            return _body(response, url, progress)
    except urllib.error.HTTPError as error:
        error.close()
        raise MissingDatasetError(f"{url} responded with {error.code} {error.reason}.") from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, MissingDatasetError):
            raise
        raise MissingDatasetError(f"{url} cannot be read: {_reason(error)}.") from None


def _opener() -> urllib.request.OpenerDirector:
    opener = urllib.request.OpenerDirector()
    opener.addheaders = [("User-Agent", "imondrian")]
    for handler in _HANDLERS:
        opener.add_handler(handler())
    return opener


def _body(response: Any, url: str, progress: DownloadProgress | None) -> bytes:
    length = response.headers.get("Content-Length", "")
    n_expected = int(length) if length.isdecimal() else None
    if n_expected is not None and n_expected > MAX_BYTES:
        raise MissingDatasetError(f"{url} must have at most {MAX_BYTES} bytes, but has {n_expected}.")
    body, n_read, end = io.BytesIO(), 0, time.monotonic() + TOTAL_TIMEOUT
    while block := response.read1(_BLOCK_BYTES):  # returns the bytes available; read() would wait for a full block
        n_read += body.write(block)
        if progress is not None:
            progress(n_read, n_expected)
        if n_read > MAX_BYTES:
            raise MissingDatasetError(f"{url} must have at most {MAX_BYTES} bytes, but has more.")
        if time.monotonic() > end:
            raise MissingDatasetError(f"{url} took more than {TOTAL_TIMEOUT:g} seconds.")
    if n_expected is not None and n_read != n_expected:
        raise MissingDatasetError(f"{url} was truncated: {n_expected} bytes were expected, but {n_read} were received.")
    return body.getvalue()


def _reason(error: Exception) -> str:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    return str(reason) or type(reason).__name__
