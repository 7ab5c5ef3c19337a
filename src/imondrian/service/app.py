"""The service over HTTP: all routes behind the guard; detectors are kept when it ends."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.types import ASGIApp

import imondrian
from imondrian.service.memory import Memory
from imondrian.service.posting import Posting
from imondrian.service.registry import Registry
from imondrian.service.routes import detectors, history, models, points, status
from imondrian.service.safety import Guard
from imondrian.service.telling import TOLD
from imondrian.service.turns import Turns, TurnsOfEach
from imondrian.service.waiting import Waiting


def create_app(registry: Registry, token: str | None = None) -> ASGIApp:
    """Make the application, with its guard."""
    api, limits = create_api(registry), registry.limits
    api.state.memory = Memory(limits.memory_bytes)
    api.state.parsing = Turns(limits.parsed_at_once, limits.waiting_turns)
    api.state.copying = Turns(limits.copies_at_once, limits.waiting_turns)
    api.state.answering = Turns(limits.large_answers_at_once, limits.waiting_turns)
    api.state.making = Turns(1, limits.waiting_turns)  # one detector is made at a time, and who waits takes no thread
    api.state.asking = TurnsOfEach(1, limits.waiting_turns)  # one question at a time has the copy of a detector
    return Guard(Posting(api), token, limits, api.state.memory)


def create_api(registry: Registry) -> FastAPI:
    """Make the routes; when they end, all that waits is done and kept."""

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        api.state.waiting = Waiting()
        yield
        with ThreadPoolExecutor(1) as apart:  # from the threads that may still be at work for requests
            await asyncio.get_running_loop().run_in_executor(apart, registry.close, registry.keeping.seconds_to_end)

    api = FastAPI(
        title="imondrian",
        version=imondrian.__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # it would send clients to whatever host they name
    )
    api.state.registry = registry
    for module in (detectors, points, history, models, status):
        api.include_router(module.router)
    for kind, told in TOLD.items():
        api.add_exception_handler(kind, told)
    return api
