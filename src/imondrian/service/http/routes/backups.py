"""The route that returns a copy of everything that the service stores."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from typing import IO

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from imondrian.service.http.routes.common import problems, raise_if_disconnected, registry_of
from imondrian.service.storage.store import FILE

router = APIRouter(tags=["backups"])
_TYPE, _CHUNK_BYTES = "application/vnd.sqlite3", 2**18


@router.get(
    "/backup",
    response_class=Response,
    responses={200: {"content": {_TYPE: {"schema": {"type": "string", "format": "binary"}}}}, **problems(503, 507)},
)
async def backup(request: Request) -> Response:
    """Return a copy of all detectors, incidents and events, from which a service can be started.

    The copy has the state at one moment; requests are answered meanwhile.
    """
    limits = registry_of(request).limits
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(request.app.state.backup_limit.slot())
        await raise_if_disconnected(request)
        file, n_bytes = await run_in_threadpool(registry_of(request).backup)
        stack.enter_context(file)
        seconds = limits.backup_seconds + n_bytes / limits.backup_rate
        return _FileResponse(file, n_bytes, seconds, stack.pop_all())


class _FileResponse(StreamingResponse):
    """Sends a copy; then, or if the client is too slow, releases what the copy needs: its file, and the slot.

    Parameters
    ----------
    file : file
        The copy.
    n_bytes : int
        Its size.
    seconds : float
        After this time the response is aborted.
    resources : AsyncExitStack
        What the copy needs; closed at the end.
    """

    def __init__(self, file: IO[bytes], n_bytes: int, seconds: float, resources: AsyncExitStack) -> None:
        headers = {"Content-Length": str(n_bytes), "Content-Disposition": f'attachment; filename="{FILE}"'}
        super().__init__(_chunks(file), media_type=_TYPE, headers=headers)
        self._seconds, self._resources = seconds, resources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        async with self._resources:
            with suppress(TimeoutError):  # then the server closes the connection, because the response is incomplete
                async with asyncio.timeout(self._seconds):
                    await super().__call__(scope, receive, send)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK_BYTES):
        yield chunk
