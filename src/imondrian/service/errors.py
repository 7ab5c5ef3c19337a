"""The errors of the service, and the HTTP response to each: one line, without internals."""

import logging
import re
from collections.abc import Mapping
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from imondrian.base.errors import DamagedFileError, ImondrianError, InvalidInputError, StoreError

_LOG = logging.getLogger("imondrian.service")


class NotFoundError(ImondrianError):
    """The detector, row or file does not exist."""


class ConflictError(ImondrianError):
    """A different detector has that name, or the limit on the number or total size of detectors is reached."""


class BodyTooLongError(ImondrianError):
    """The body of a request is longer than allowed."""


class QueueFullError(ImondrianError):
    """The queue of a detector is full."""


class UnavailableError(ImondrianError):
    """The detector is being removed, or the service is shutting down."""


class RemovedError(UnavailableError):
    """The detector was removed before the request was processed."""


class NotRecoveredError(ImondrianError):
    """The detector could not be recovered when the service started."""


class DetectorFailedError(ImondrianError):
    """The detector failed while a change was being applied."""


class CapacityError(ImondrianError):
    """The service currently has no memory or no free slot for a request."""


class StorageError(ImondrianError):
    """Data could not be written or read; nothing was changed."""


_STATUS = {
    NotFoundError: 404,
    RemovedError: 404,
    ConflictError: 409,
    BodyTooLongError: 413,
    DamagedFileError: 422,
    InvalidInputError: 422,
    QueueFullError: 429,
    DetectorFailedError: 500,
    UnavailableError: 503,
    NotRecoveredError: 503,
    CapacityError: 503,
    StoreError: 503,  # a fleet was closed, because its detector was removed or the service is shutting down
    StorageError: 507,
}
_RETRYABLE = {429, 503}


async def _error_response(_request: Request, error: Exception) -> Response:
    """Return the response to an ImondrianError."""
    code = next((code for error_type, code in _STATUS.items() if isinstance(error, error_type)), 400)
    return JSONResponse({"detail": str(error)}, code, {"Retry-After": "1"} if code in _RETRYABLE else {})


async def _out_of_memory_response(_request: Request, _error: Exception) -> Response:
    """Return the response to a MemoryError."""
    return JSONResponse({"detail": "There is currently not enough memory for the request."}, 503, {"Retry-After": "1"})


async def _validation_error_response(_request: Request, error: Exception) -> Response:
    """Return the first problem that pydantic found, in one line."""
    first = error.errors()[0] if isinstance(error, RequestValidationError) else {"loc": (), "msg": "invalid"}
    return JSONResponse({"detail": validation_message(first)}, 422)


def validation_message(error: Mapping[str, Any]) -> str:
    """Return one line that describes a problem found by pydantic."""
    return ": ".join([*map(str, error["loc"]), error["msg"]])


async def _http_error_response(request: Request, error: Exception) -> Response:
    """Return the response to errors of FastAPI itself, such as unknown paths and unsupported methods."""
    code = error.status_code if isinstance(error, HTTPException) else 500
    detail = error.detail if isinstance(error, HTTPException) else ""
    allowed = {"Allow": ", ".join(_methods_of(request))} if code == 405 else {}
    return JSONResponse({"detail": detail}, code, allowed)


def _methods_of(request: Request) -> list[str]:
    for path, operations in request.app.openapi()["paths"].items():
        if re.fullmatch(re.sub(r"{\w+}", "[^/]+", path), request.url.path):
            return sorted(method.upper() for method in operations)
    return ["GET"]  # the page and its files, which the OpenAPI description does not contain


async def _disconnected_response(_request: Request, _error: Exception) -> Response:
    """Return a response for a client that disconnected before its body was complete; nothing was done."""
    return Response(status_code=400)


async def _internal_error_response(_request: Request, error: Exception) -> Response:
    """Log an unexpected error, and return a response without its details."""
    _LOG.error("A request failed.", exc_info=error)
    return JSONResponse({"detail": "Internal error; see the log of the service."}, 500)


async def response_to(request: Request, error: Exception) -> Response:
    """Return the response to an error of any type, and free the frames that raised it.

    They hold the body of the request and its rows, and usually a future that holds the error, so that otherwise only a
    garbage collection would free them.
    """
    respond = next(respond for error_type, respond in _RESPONSES.items() if isinstance(error, error_type))
    response = await respond(request, error)
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__context__
    return response


_RESPONSES = {
    ImondrianError: _error_response,
    HTTPException: _http_error_response,
    RequestValidationError: _validation_error_response,
    ClientDisconnect: _disconnected_response,
    MemoryError: _out_of_memory_response,
    Exception: _internal_error_response,
}
EXCEPTION_HANDLERS = dict.fromkeys(_RESPONSES, response_to)
