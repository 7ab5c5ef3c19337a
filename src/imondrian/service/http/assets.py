"""The files of the page, read once and looked up by name: no path is ever built from a request."""

import gzip
import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Asset(NamedTuple):
    """A file of the page."""

    content: bytes
    media_type: str
    etag: str


@cache
def page_assets() -> dict[str, Asset]:
    """Return the files of the page by name, with the plotly.js that plotly bundles."""
    folder = files("imondrian.service") / "static"
    found = {file.name: file.read_bytes() for file in folder.iterdir()}
    found["plotly.min.js"] = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    return {name: _asset(name, content) for name, content in found.items() if _type_of(name)}


@cache
def gzipped(name: str) -> bytes:
    """Return the content of a file, compressed at the first request."""
    return gzip.compress(page_assets()[name].content, mtime=0)


def _asset(name: str, content: bytes) -> Asset:
    return Asset(content, _type_of(name), f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"')


def _type_of(name: str) -> str:
    return next((media_type for ending, media_type in _TYPES.items() if name.endswith(ending)), "")
