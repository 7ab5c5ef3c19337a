"""What the routes share: the detectors, the one that a path names, and the errors that OpenAPI tells."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Annotated, Any

from fastapi import Path, Request, Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from imondrian.service.configuration import NAME
from imondrian.service.limits import Limits
from imondrian.service.registry import DetectorHandle, Registry
from imondrian.service.schemas import Problem

JSON = "application/json"
Name = Annotated[str, Path(pattern=f"^{NAME}$", max_length=Limits().name_length, examples=["pumps"])]


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Tell OpenAPI which errors there can be."""
    return {code: {"model": Problem} for code in (401, 403, *codes)}


def registry_of(request: Request) -> Registry:
    """Give the detectors."""
    return request.app.state.registry


def handle_of(request: Request, name: str) -> DetectorHandle:
    """Find the detector."""
    return registry_of(request).get(name)


async def large_response(
    request: Request, make: Callable[[], BaseModel], turn: AbstractAsyncContextManager[None] | None = None
) -> Response:
    """Answer with what is made in another thread, in its turn, unless the client has left meanwhile.

    The event loop only sends it: writing much JSON there would keep all others waiting.
    """
    async with request.app.state.response_limit.slot():
        if await request.is_disconnected():
            raise ClientDisconnect
        async with turn or nullcontext():
            content = await run_in_threadpool(lambda: make().model_dump_json().encode())
    return Response(content, media_type=JSON)


@asynccontextmanager
async def copy_slot(request: Request, handle: DetectorHandle) -> AsyncIterator[None]:
    """Wait for the turn to have a copy of a detector, and count its memory meanwhile."""
    async with request.app.state.copy_limit.slot():
        with request.app.state.memory.reserved(handle.worker.summary.n_bytes):
            yield


def read_slot(request: Request, handle: DetectorHandle) -> AbstractAsyncContextManager[None]:
    """Wait for the turn to ask the copy that a detector has for all, without a thread that others need."""
    return request.app.state.read_limit.slot(handle.worker)
