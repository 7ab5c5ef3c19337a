"""The page: its files, read once; a file is found by its name in a table, and no path is ever made of a request."""

import gzip
import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class File(NamedTuple):
    """A file of the page."""

    content: bytes
    media_type: str
    tag: str  # by which a browser knows whether it has this one already


@cache
def page_files() -> dict[str, File]:
    """Read the files of the page, and the drawing library that comes with plotly."""
    folder = files("imondrian.service") / "static"
    found = {file.name: file.read_bytes() for file in folder.iterdir()}
    found["plotly.min.js"] = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    return {name: _file(name, content) for name, content in found.items() if _type_of(name)}


@cache
def shortened(name: str) -> bytes:
    """Give a file as gzip, made when it is first asked for."""
    return gzip.compress(page_files()[name].content, mtime=0)


def _file(name: str, content: bytes) -> File:
    return File(content, _type_of(name), f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"')


def _type_of(name: str) -> str:
    return next((media_type for ending, media_type in _TYPES.items() if name.endswith(ending)), "")
