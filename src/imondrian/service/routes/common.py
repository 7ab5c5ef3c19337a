"""What the routes share: the detectors, the one that a path names, and the errors that OpenAPI tells."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Annotated, Any

from fastapi import Path, Request, Response
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from imondrian.service.configuration import NAME
from imondrian.service.registry import Known, Registry
from imondrian.service.schemas import Problem
from imondrian.service.settings import Limits

JSON = "application/json"
Name = Annotated[str, Path(pattern=f"^{NAME}$", max_length=Limits().name_length, examples=["pumps"])]


def problems(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Tell OpenAPI which errors there can be."""
    return {code: {"model": Problem} for code in (401, 403, *codes)}


def registry_of(request: Request) -> Registry:
    """Give the detectors."""
    return request.app.state.registry


def known_of(request: Request, name: str) -> Known:
    """Find the detector."""
    return registry_of(request).get(name)


async def large_answer(
    request: Request, make: Callable[[], BaseModel], turn: AbstractAsyncContextManager[None] | None = None
) -> Response:
    """Answer with what is made in another thread, in its turn, unless the client has left meanwhile.

    The event loop only sends it: writing much JSON there would keep all others waiting.
    """
    async with request.app.state.answering.turn():
        if await request.is_disconnected():
            raise ClientDisconnect
        async with turn or nullcontext():
            content = await run_in_threadpool(lambda: make().model_dump_json().encode())
    return Response(content, media_type=JSON)


@asynccontextmanager
async def copying(request: Request, known: Known) -> AsyncIterator[None]:
    """Wait for the turn to have a copy of a detector, and count its memory meanwhile."""
    async with request.app.state.copying.turn():
        with request.app.state.memory.holding(known.live.figures.n_bytes):
            yield


def asking(request: Request, known: Known) -> AbstractAsyncContextManager[None]:
    """Wait for the turn to ask the copy that a detector has for all, without a thread that others need."""
    return request.app.state.asking.turn(known.live)
