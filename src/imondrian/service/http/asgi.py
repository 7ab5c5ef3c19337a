"""The ASGI application: all routes behind the guard, and a fast path for posts. At shutdown, it saves all detectors."""

import asyncio
import re
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from starlette.types import ASGIApp, Receive, Scope, Send

import imondrian
from imondrian.service.capacity import ConcurrencyLimit, ConcurrencyLimitPerObject, MemoryBudget
from imondrian.service.changes.configuration import NAME
from imondrian.service.detectors.registry import Registry
from imondrian.service.errors import EXCEPTION_HANDLERS, response_to
from imondrian.service.http.futures import FutureBridge
from imondrian.service.http.guard import Guard
from imondrian.service.http.listeners import Listeners
from imondrian.service.http.routes import backups, incidents, keys, lifecycle, page_files, points, status

_POINTS_PATH = re.compile(f"/detectors/({NAME})/points")


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
    return Guard(_FastPath(api), token, limits, api.state.memory)


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
        page_files.router,
    ):
        api.include_router(router)
    for error_type, handler in EXCEPTION_HANDLERS.items():
        api.add_exception_handler(error_type, handler)
    return api


class _FastPath:
    """A shortcut to the route that is called thousands of times a second: POST /detectors/{name}/points.

    The route is declared in `routes.points` like all others, and is part of the OpenAPI description. But routing,
    dependencies and validation take longer than the work itself, so the function of the route is called directly here.
    All other requests are passed to the API.
    """

    def __init__(self, api: FastAPI) -> None:
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        match = _POINTS_PATH.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if match is None:
            await self._api(scope, receive, send)
            return
        scope["app"] = self._api
        request = Request(scope, receive)
        try:
            response = await points.learn(request, match[1])
        except Exception as error:  # noqa: BLE001 (catches everything, like the API's handler for Exception)
            response = await response_to(request, error)
        await response(scope, receive, send)
