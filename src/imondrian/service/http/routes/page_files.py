"""The page: the routes that return its files, which are read once.

Files are looked up by name: no path is ever built from a request.
"""

import gzip
import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from imondrian.service.errors import NotFoundError

router = APIRouter()
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@router.get("/", include_in_schema=False)
async def page(request: Request) -> Response:
    """Return the page."""
    return await run_in_threadpool(_file, "index.html", request)


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """Return the page that lists all routes."""
    return await run_in_threadpool(_file, "docs.html", request)


@router.get("/static/{name}", include_in_schema=False)
async def static(name: str, request: Request) -> Response:
    """Return a file of the page."""
    return await run_in_threadpool(_file, name, request)


def _file(name: str, request: Request) -> Response:
    if name not in _page_files():
        raise NotFoundError(f"The page has no file {name[:100]!r}.")
    content, media_type, etag = _page_files()[name]
    headers = {"Cache-Control": "no-cache", "ETag": etag, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(_gzipped(name), media_type=media_type, headers=headers | {"Content-Encoding": "gzip"})
    return Response(content, media_type=media_type, headers=headers)


class _PageFile(NamedTuple):
    """A file of the page."""

    content: bytes
    media_type: str
    etag: str


@cache
def _page_files() -> dict[str, _PageFile]:
    """Return the files of the page by name, with the plotly.js that plotly bundles."""
    folder = files("imondrian.service") / "static"
    found = {file.name: file.read_bytes() for file in folder.iterdir()}
    found["plotly.min.js"] = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    return {name: _page_file(name, content) for name, content in found.items() if _type_of(name)}


@cache
def _gzipped(name: str) -> bytes:
    """Return the content of a file, compressed at the first request."""
    return gzip.compress(_page_files()[name].content, mtime=0)


def _page_file(name: str, content: bytes) -> _PageFile:
    return _PageFile(content, _type_of(name), f'"{hashlib.blake2b(content, digest_size=12).hexdigest()}"')


def _type_of(name: str) -> str:
    return next((media_type for ending, media_type in _TYPES.items() if name.endswith(ending)), "")
