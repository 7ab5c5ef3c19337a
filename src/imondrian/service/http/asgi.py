"""The ASGI application: all routes behind the guard. At shutdown, it saves all detectors."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.types import ASGIApp

import imondrian
from imondrian.service.capacity import ConcurrencyLimit, ConcurrencyLimitPerObject, MemoryBudget
from imondrian.service.detectors.registry import Registry
from imondrian.service.errors import EXCEPTION_HANDLERS
from imondrian.service.http.fast_path import FastPath
from imondrian.service.http.futures import FutureBridge
from imondrian.service.http.guard import Guard
from imondrian.service.http.listeners import Listeners
from imondrian.service.http.routes import backups, incidents, keys, lifecycle, points, status


def create_app(registry: Registry, token: str | None = None) -> ASGIApp:
    """Return the complete application: guard, fast path and routes.

    Parameters
    ----------
    registry : Registry
        The detectors to serve; it is closed at shutdown.
    token : str, optional
        The token that clients must send; without one, requests must be addressed to this machine (a loopback address).
    """
    api, limits = create_api(registry), registry.limits
    api.state.memory = MemoryBudget(limits.memory_bytes)
    api.state.parse_limit = ConcurrencyLimit(limits.parsed_at_once, limits.waiting_for_slot)
    api.state.copy_limit = ConcurrencyLimit(limits.copies_at_once, limits.waiting_for_slot)
    api.state.response_limit = ConcurrencyLimit(limits.large_responses_at_once, limits.waiting_for_slot)
    api.state.create_limit = ConcurrencyLimit(1, limits.waiting_for_slot)  # waiting requests occupy no thread
    api.state.backup_limit = ConcurrencyLimit(1, limits.waiting_for_slot)
    api.state.read_limit = ConcurrencyLimitPerObject(1, limits.waiting_for_slot)  # one read per shared copy
    return Guard(FastPath(api), token, limits, api.state.memory)


def create_api(registry: Registry) -> FastAPI:
    """Return the application with all routes; at shutdown it closes the registry, which saves everything queued."""

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        api.state.futures = FutureBridge()
        api.state.listeners = Listeners(registry.feed, api.state.futures, registry.limits.listeners)
        yield
        api.state.listeners.close()
        with ThreadPoolExecutor(1) as executor:  # its own thread: those of requests may still be busy
            await asyncio.get_running_loop().run_in_executor(
                executor, registry.close, registry.retention.shutdown_seconds
            )

    api = FastAPI(
        title="imondrian",
        version=imondrian.__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # the redirect would use the host name that the client sent
    )
    api.state.registry = registry
    for router in (
        lifecycle.router,
        points.router,
        points.history_router,
        keys.router,
        incidents.router,
        lifecycle.model_router,
        backups.router,
        status.router,
    ):
        api.include_router(router)
    for error_type, handler in EXCEPTION_HANDLERS.items():
        api.add_exception_handler(error_type, handler)
    return api
