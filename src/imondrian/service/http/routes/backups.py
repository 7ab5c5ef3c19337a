"""The route that returns a copy of everything that the service stores."""

from collections.abc import Iterator
from typing import IO

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

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
    async with request.app.state.backup_limit.slot():
        await raise_if_disconnected(request)
        file, n_bytes = await run_in_threadpool(registry_of(request).backup)
    headers = {"Content-Length": str(n_bytes), "Content-Disposition": f'attachment; filename="{FILE}"'}
    return StreamingResponse(_chunks(file), media_type=_TYPE, headers=headers)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
