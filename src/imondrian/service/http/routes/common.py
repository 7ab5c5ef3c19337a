"""Functions that all routes share: lookup of detectors, error schemas, large responses and slots for reads."""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Annotated, Any, TypeVar

from fastapi import Path, Request, Response
from pydantic import BaseModel, BeforeValidator
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from imondrian.service.capacity import RequestMemory
from imondrian.service.changes.configuration import NAME
from imondrian.service.detectors.registry import DetectorHandle, Registry
from imondrian.service.http.json_pieces import json_pieces
from imondrian.service.http.schemas import Problem
from imondrian.service.limits import SMALL_RESPONSE, Limits

JSON = "application/json"
_SMALL_BODY = 2**14  # bytes; shorter bodies are parsed in the event loop, not in another thread
Parsed = TypeVar("Parsed")
Name = Annotated[str, Path(pattern=f"^{NAME}$", max_length=Limits().name_length, examples=["pumps"])]


def _plain_integer(text: str) -> str:
    """Return the text of an integer; raise ValueError for others, such as +0.0, which pydantic reads as 0."""
    if re.fullmatch("-?[0-9]+", text, re.ASCII) is None:
        raise ValueError("must be an integer")
    return text


Integer = Annotated[int, BeforeValidator(_plain_integer)]


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of error responses; 401 and 403 are always included."""
    return {code: {"model": Problem} for code in (401, 403, *codes)}


def registry_of(request: Request) -> Registry:
    """Return the registry of the application."""
    return request.app.state.registry


def handle_of(request: Request, name: str) -> DetectorHandle:
    """Return a detector by name."""
    return registry_of(request).get(name)


async def raise_if_disconnected(request: Request) -> None:
    """Raise ClientDisconnect if the client has disconnected, so that no work is done for it."""
    if await request.is_disconnected():
        raise ClientDisconnect


async def parse_body(request: Request, parse: Callable[[bytes], Parsed], *, is_change: bool = False) -> Parsed:
    """Return the parsed body of a request; long bodies are parsed in another thread, one at a time.

    If the client has disconnected, a long body is parsed only if it contains points to learn or forget (`is_change`).
    """
    body = await request.body()
    if len(body) < _SMALL_BODY:
        return parse(body)
    async with request.app.state.parse_limit.slot():
        if not is_change:
            await raise_if_disconnected(request)
        return await run_in_threadpool(parse, body)


async def json_response(request: Request, make: Callable[[], BaseModel], n_bytes: int = 0) -> Response:
    """Make a response in another thread: writing a lot of JSON in the event loop would block all other requests.

    The caller holds a slot, which limits how many responses are made at the same time. `n_bytes` is the memory that the
    objects need from which the JSON is written; it is reserved until it has been written.
    """
    with request.app.state.memory.reserved(n_bytes) if n_bytes else nullcontext():
        return Response(await run_in_threadpool(_content, make, request.state.memory), media_type=JSON)


def _content(make: Callable[[], BaseModel], memory: RequestMemory) -> memoryview:
    """Return a response as JSON; memory for it is reserved as it grows, unless it is small."""
    content = bytearray()
    for piece in json_pieces(make()):
        content += piece
        if len(content) > SMALL_RESPONSE:
            memory.reserve_response(len(content))
    return memoryview(content)


async def large_response(
    request: Request,
    make: Callable[[], BaseModel],
    slot: AbstractAsyncContextManager[None] | None = None,
    n_bytes: int = 0,
) -> Response:
    """Wait for a slot, and make a response in another thread, unless the client has disconnected.

    Parameters
    ----------
    request : Request
    make : callable
        Returns the content of the response.
    slot : async context manager, optional
        A further slot to wait for.
    n_bytes : int, optional
        The memory to reserve while the response is made.
    """
    async with request.app.state.response_limit.slot():
        await raise_if_disconnected(request)
        async with slot or nullcontext():
            return await json_response(request, make, n_bytes)


@asynccontextmanager
async def copy_slot(request: Request, handle: DetectorHandle) -> AsyncIterator[None]:
    """Wait for a slot to copy a detector, and reserve memory for the copy, unless the client has disconnected."""
    async with request.app.state.copy_limit.slot():
        await raise_if_disconnected(request)
        with request.app.state.memory.reserved(handle.worker.summary.copy_bytes):
            yield


@asynccontextmanager
async def read_slot(request: Request, handle: DetectorHandle) -> AsyncIterator[None]:
    """Wait, without occupying a thread, for the slot to read the shared copy of a detector."""
    async with request.app.state.read_limit.slot(handle.worker):
        await raise_if_disconnected(request)
        yield


@asynccontextmanager
async def key_slot(request: Request, handle: DetectorHandle, n_keys: int = 1) -> AsyncIterator[None]:
    """Wait for the slot to copy detectors of keys, one request at a time, and reserve memory for `n_keys` copies."""
    async with read_slot(request, handle):
        with request.app.state.memory.reserved(n_keys * handle.worker.summary.copy_bytes):
            yield


@asynccontextmanager
async def create_slot(request: Request) -> AsyncIterator[None]:
    """Wait, without occupying a thread, for the slot to create or restore a detector."""
    async with request.app.state.create_limit.slot():
        await raise_if_disconnected(request)
        yield
