"""The start of the service: recover the detectors and compile the kernels, while every request is answered with 503."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from imondrian.fleet.fleet import Fleet
from imondrian.model_files import from_bytes, to_bytes
from imondrian.service.http.guard import HEADERS
from imondrian.stream.detector import StreamDetector

_SECONDS = 3.0  # between two reports of progress


class StartingApp:
    """An application that refuses requests while a thread makes the real application, then passes requests on to it.

    Parameters
    ----------
    make : callable
        Makes the application; called in a thread.
    on_wait : callable
        Called in the event loop every few seconds until the application is made.
    on_ready, on_failure : callable
        Called in the event loop: `on_ready` when the application begins to receive requests, `on_failure` if it could
        not be made.

    Attributes
    ----------
    error : Exception or None
        Why the application could not be made.
    """

    def __init__(
        self,
        make: Callable[[], ASGIApp],
        on_wait: Callable[[], None],
        on_ready: Callable[[], None],
        on_failure: Callable[[], None],
    ) -> None:
        self._make, self._on_wait, self._on_ready, self._on_failure = make, on_wait, on_ready, on_failure
        self._app: ASGIApp | None = None
        self.error: Exception | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            await self._run(scope, receive, send)
        elif self._app is not None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._refusal(scope["path"])(scope, receive, send)

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Make the application and run it until the shutdown; if it is not ready by then, abandon it."""
        await receive()
        await send({"type": "lifespan.startup.complete"})
        shutdown: asyncio.Future[Any] = asyncio.ensure_future(receive())
        made: asyncio.Future[Any] = asyncio.wrap_future(_in_thread(self._make))
        done: set[asyncio.Future[Any]] = set()
        while not done:
            done, _ = await asyncio.wait([shutdown, made], timeout=_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                self._on_wait()
        try:
            if made.done():
                await self._run_lifespan(made.result(), scope, shutdown)
        except Exception as error:
            if self._app is not None:  # the application was already running
                raise
            self.error = error
            self._on_failure()
        await shutdown
        await send({"type": "lifespan.shutdown.complete"})

    async def _run_lifespan(self, app: ASGIApp, scope: Scope, shutdown: asyncio.Future[Any]) -> None:
        """Run the lifespan of the application, which receives all requests once its startup is complete."""
        is_started = False

        async def receive() -> Message:
            nonlocal is_started
            if is_started:
                return await shutdown
            is_started = True
            return {"type": "lifespan.startup"}

        async def send(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._app = app
                self._on_ready()

        await app(scope, receive, send)

    def _refusal(self, path: str) -> Response:
        headers = {"Retry-After": "1"} | {name.decode(): value.decode() for name, value in HEADERS}
        if path == "/health":
            return JSONResponse({"status": "starting", "problems": []}, 503, headers)
        if path == "/":  # because of the header Refresh, a browser tries again every second
            return PlainTextResponse("The service is starting.", 503, headers | {"Refresh": "1"})
        return JSONResponse({"detail": "The service is starting."}, 503, headers)


def compile_kernels() -> None:
    """Call everything that a detector needs, so that the first request does not wait for the compiler."""
    rows = np.random.default_rng(0).normal(size=(80, 2))
    detector = StreamDetector(2, n_trees=2, window=32, max_samples=8, warm_up=16)
    detector.process_many(rows)
    detector.process(rows[0])
    detector.explain(rows[0])
    from_bytes(to_bytes(detector))
    fleet = Fleet(2, n_trees=2, window=32, max_samples=8, warm_up=16)
    fleet.process_many(["a", "b"] * 40, rows)
    fleet.detector("a")


def _in_thread(function: Callable[[], ASGIApp]) -> Future[ASGIApp]:
    """Call a function in a daemon thread, which does not delay the end of the process."""
    result = Future[ASGIApp]()

    def run() -> None:
        result.set_running_or_notify_cancel()
        try:
            result.set_result(function())
        except BaseException as error:  # noqa: BLE001 (raised again in the event loop)
            result.set_exception(error)

    threading.Thread(target=run, name="imondrian-start", daemon=True).start()
    return result
