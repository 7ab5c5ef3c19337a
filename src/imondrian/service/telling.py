"""Errors as answers: what was wrong, in one line and without internals."""

import logging
import re
from collections.abc import Mapping
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from imondrian.errors import DamagedFileError, ImondrianError, InvalidInputError
from imondrian.service.live import BusyError, FailedError, GoneError, RemovedError
from imondrian.service.memory import FullError
from imondrian.service.registry import AsideError, ConflictError, UnknownError
from imondrian.service.safety import TooLongError
from imondrian.service.store import StorageError

_LOG = logging.getLogger("imondrian.service")
_STATUS = {
    UnknownError: 404,
    RemovedError: 404,
    ConflictError: 409,
    TooLongError: 413,
    DamagedFileError: 422,
    InvalidInputError: 422,
    BusyError: 429,
    FailedError: 500,
    GoneError: 503,
    AsideError: 503,
    FullError: 503,
    StorageError: 507,
}
_RETRY = {429, 503}


async def told(_request: Request, error: Exception) -> Response:
    """Answer with what was wrong."""
    code = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 400)
    return JSONResponse({"detail": str(error)}, code, {"Retry-After": "1"} if code in _RETRY else {})


async def told_full(_request: Request, _error: Exception) -> Response:
    """Answer that there is no memory at present."""
    return JSONResponse({"detail": "There is not enough memory for the request at present."}, 503, {"Retry-After": "1"})


async def told_invalid(_request: Request, error: Exception) -> Response:
    """Answer in one line as well where pydantic has found what was wrong."""
    first = error.errors()[0] if isinstance(error, RequestValidationError) else {"loc": (), "msg": "invalid"}
    return JSONResponse({"detail": in_one_line(first)}, 422)


def in_one_line(error: Mapping[str, Any]) -> str:
    """Write what pydantic has found."""
    return ": ".join([*map(str, error["loc"]), error["msg"]])


async def told_refused(request: Request, error: Exception) -> Response:
    """Answer what FastAPI refuses by itself: what is not there, and methods that a path does not have."""
    code = error.status_code if isinstance(error, HTTPException) else 500
    detail = error.detail if isinstance(error, HTTPException) else ""
    allowed = {"Allow": ", ".join(_methods_of(request))} if code == 405 else {}
    return JSONResponse({"detail": detail}, code, allowed)


def _methods_of(request: Request) -> list[str]:
    for path, operations in request.app.openapi()["paths"].items():
        if re.fullmatch(re.sub(r"{\w+}", "[^/]+", path), request.url.path):
            return sorted(method.upper() for method in operations)
    return ["GET"]  # of the page


async def told_nobody(_request: Request, _error: Exception) -> Response:
    """Answer a client that left in the middle of a body: nothing was done, and nobody reads it."""
    return Response(status_code=400)


async def told_nothing(_request: Request, error: Exception) -> Response:
    """Answer that it is our fault; the log has the rest."""
    _LOG.error("A request failed.", exc_info=error)
    return JSONResponse({"detail": "The service has failed; its log tells more."}, 500)


TOLD = {
    ImondrianError: told,
    HTTPException: told_refused,
    RequestValidationError: told_invalid,
    ClientDisconnect: told_nobody,
    MemoryError: told_full,
    Exception: told_nothing,
}
