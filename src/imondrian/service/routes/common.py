"""What the routes share: the detectors, the one that a path names, and the errors that OpenAPI tells."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Path, Request

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


@asynccontextmanager
async def copying(request: Request, known: Known) -> AsyncIterator[None]:
    """Wait for the turn to have a copy of a detector, and count its memory meanwhile."""
    async with request.app.state.copying.turn():
        with request.app.state.memory.holding(known.live.figures.n_bytes):
            yield
