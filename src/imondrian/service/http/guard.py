"""Access checks, limits on bodies and on memory, and the security headers of every response."""

import asyncio
import hmac
import ipaddress
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from imondrian.service.capacity import MemoryBudget, RequestMemory
from imondrian.service.errors import BodyTooLongError, CapacityError
from imondrian.service.limits import KIB, PER_BYTE_OF_MODELS, PER_BYTE_OF_POINTS, SMALL_RESPONSE, Limits

_PUBLIC = ("/health", "/", "/docs")
_STATIC, _BACKUP = "/static/", "/backup"
_WITH_POINTS = {"POST": {"points", "scores", "explanations"}, "DELETE": {"points"}}  # ends of paths
_SMALL_BODY = 16 * KIB  # no memory is reserved up to this size
_MAX_DIGITS = 18  # of a Content-Length
_PIECE_BYTES = 2**16  # of a response, passed to the connection at once
HEADERS = tuple(
    {
        b"x-content-type-options": b"nosniff",
        b"x-frame-options": b"DENY",
        b"referrer-policy": b"no-referrer",
        b"cross-origin-resource-policy": b"same-origin",
        b"cache-control": b"no-store",
        b"content-security-policy": (
            b"default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; object-src 'none';"
            b" base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
        ),
    }.items()
)


class Guard:
    """Middleware that checks the token, the host and the origin, limits bodies, and adds security headers.

    A page of another site that is open in a browser on this machine can also reach a loopback address: directly, or
    under a host name that resolves to it. Therefore, without a token, the Host header must name this machine. The
    Origin header, if the browser sends one, must always be that of the service's own page.
    """

    def __init__(self, app: ASGIApp, token: str | None, limits: Limits, memory: MemoryBudget) -> None:
        self._app, self._limits, self._memory = app, limits, memory
        self._token = None if token is None else b"Bearer " + token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        max_bytes, per_byte = self._body_limits(scope["method"], scope["path"])
        refusal = self._refusal(scope, headers, max_bytes)
        if refusal is not None:
            await refusal(scope, receive, _ResponseSender(send, RequestMemory(self._memory)))
            return
        memory, length = RequestMemory(self._memory), int(headers.get(b"content-length", b"0"))
        scope["state"]["memory"] = memory
        sender = _ResponseSender(send, memory, _reservation(scope, memory))
        try:
            if length > _SMALL_BODY:
                memory.reserve(per_byte * length)
            await self._app(scope, _limited(receive, max_bytes, length, per_byte, memory), sender)
        except CapacityError as error:
            await _no_capacity(error)(scope, receive, _ResponseSender(send, memory))
        except asyncio.CancelledError:  # the grace period of the shutdown is over
            if not sender.has_started:
                await _shutting_down(scope)(scope, receive, sender)
        finally:
            memory.close()

    def _body_limits(self, method: str, path: str) -> tuple[int, int]:
        """Return the maximum length of a body, and how much memory each of its bytes needs.

        A request that needs no body or no token may only have a small body, for which no memory is reserved.
        """
        limits, part = self._limits, _part_of_detector(path)
        if _is_public(path):
            return limits.unused_body_bytes, 0
        if part in _WITH_POINTS.get(method, ()):
            return limits.body_bytes, PER_BYTE_OF_POINTS
        if method not in ("PUT", "PATCH"):
            return limits.unused_body_bytes, 0
        if method == "PUT" and part == "model":
            return limits.model_bytes, PER_BYTE_OF_MODELS
        return limits.configuration_bytes, PER_BYTE_OF_POINTS

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes], max_bytes: int) -> JSONResponse | None:
        """Return the response to a request that is refused, or None."""
        host = headers.get(b"host", b"").decode("latin-1")
        if self._token is None and not is_loopback(_hostname(f"//{host}")):
            return JSONResponse({"detail": "The Host header must name this machine, unless a token is set."}, 403)
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").partition("://")[2] != host:
            return JSONResponse({"detail": "The request was sent by a page of another site."}, 403)
        is_trusted = self._token is None or hmac.compare_digest(headers.get(b"authorization", b""), self._token)
        scope["state"] = {**scope.get("state", {}), "is_trusted": is_trusted}
        if not is_trusted and not _is_public(scope["path"]):
            return JSONResponse({"detail": "A token is required."}, 401, {"WWW-Authenticate": "Bearer"})
        if not (_is_utf8(scope.get("raw_path", b"")) and _is_utf8(scope.get("query_string", b""))):
            return JSONResponse({"detail": "The percent-encoded characters of the URL must be UTF-8."}, 422)
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > _MAX_DIGITS or int(length) > max_bytes:
            return JSONResponse({"detail": f"The body is longer than {max_bytes} bytes."}, 413)
        return None


def _part_of_detector(path: str) -> str:
    """Return the part of a detector that a path names, such as points or model; "" for a detector as a whole."""
    names = path.split("/")  # of /detectors/{name}/{part}
    return names[3] if len(names) == len(("", "detectors", "name", "part")) else ""


def _is_public(path: str) -> bool:
    """Return True if a path needs no token."""
    return path in _PUBLIC or path.startswith(_STATIC)


def _is_utf8(part: bytes) -> bool:
    """Return True if a part of a URL is UTF-8; otherwise different keys could be decoded to the same text."""
    try:
        unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        return False
    return True


@lru_cache(64)
def _hostname(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").rstrip(".")
    except ValueError:
        return ""


@lru_cache(64)
def is_loopback(host: str) -> bool:
    """Return True if an address can only be reached from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _shutting_down(scope: Scope) -> JSONResponse:
    """Return the response to a request that is not complete when the service ends.

    The status is 504 if the request may have changed a detector, otherwise 503, which means that nothing has changed. A
    change may be in the journal already; then it is applied now or at the next start.
    """
    detail = "The service was shut down before the request was complete"
    if _is_change(scope):
        advice = "repeat a request that learns or forgets points only if it has an Idempotency-Key"
        return JSONResponse({"detail": f"{detail}; it may have been applied: {advice}."}, 504)
    return JSONResponse({"detail": f"{detail}."}, 503, {"Retry-After": "1"})


def _is_change(scope: Scope) -> bool:
    """Return True if a request changes a detector."""
    return scope["method"] in ("PUT", "PATCH", "DELETE") or _part_of_detector(scope["path"]) == "points"


def _reservation(scope: Scope, memory: RequestMemory) -> Callable[[int], None]:
    """Return the function that reserves memory for the response to a request, given its length.

    No memory is reserved for files of the page, which are in memory once for all clients, nor for a backup, which is
    read from the disk piece by piece. The response to a request that has changed a detector is never refused, since a
    503 would hide the change.
    """
    if scope["path"].startswith(_STATIC) or scope["path"] == _BACKUP:
        return lambda _n_bytes: None
    return memory.add if _is_change(scope) else memory.reserve_response


def _no_capacity(error: CapacityError) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 503, {"Retry-After": "1"})


def _limited(receive: Receive, max_bytes: int, length: int, per_byte: int, memory: RequestMemory) -> Receive:
    """Wrap `receive`: limit the length of the body, and reserve memory for a body without a Content-Length."""
    n_read, n_reserved = 0, length

    async def limited() -> Message:
        nonlocal n_read, n_reserved
        message = await receive()
        n_read += len(message.get("body", b""))
        if n_read > max_bytes:
            raise BodyTooLongError(f"The body is longer than {max_bytes} bytes.")
        if n_read > n_reserved and n_read > _SMALL_BODY:
            memory.reserve(per_byte * (n_read - n_reserved))
            n_reserved = n_read
        return message

    return limited


class _ResponseSender:
    """Sends a response with the security headers; a large response in pieces, as fast as the client reads them.

    Memory is reserved for a large response until the client has read it; if there is not enough memory, 503 is sent
    instead.
    """

    def __init__(self, send: Send, memory: RequestMemory, reserve: Callable[[int], None] | None = None) -> None:
        self._send, self._memory, self._reserve = send, memory, reserve or memory.reserve_response
        self.has_started = self._is_replaced = False

    def __call__(self, message: Any) -> Awaitable[None]:
        """Send a message of a response."""
        if message["type"] == "http.response.start":
            self.has_started = True
            return self._start(message)
        if self._is_replaced:
            return _nothing()
        return self._send(message) if len(message.get("body", b"")) <= _PIECE_BYTES else self._in_pieces(message)

    async def _start(self, message: Any) -> None:
        present = dict(message["headers"])
        n_bytes = int(present.get(b"content-length", b"0"))
        if n_bytes > SMALL_RESPONSE:
            try:
                self._reserve(n_bytes)
            except CapacityError as error:
                sender = _ResponseSender(self._send, self._memory)
                await _no_capacity(error)({"type": "http"}, _disconnected, sender)
                self._is_replaced = True
                return
        message["headers"] = [*message["headers"], *(header for header in HEADERS if header[0] not in present)]
        await self._send(message)

    async def _in_pieces(self, message: Any) -> None:
        body = message["body"]
        for start in range(0, len(body), _PIECE_BYTES):
            is_last = start + _PIECE_BYTES >= len(body)
            piece = {
                "body": body[start : start + _PIECE_BYTES],
                "more_body": not is_last or message.get("more_body", False),
            }
            await self._send({**message, **piece})
            # `send` never waits for a fast client: without this, all other requests would have to wait
            await asyncio.sleep(0)


async def _nothing() -> None:
    """Discard a message."""


async def _disconnected() -> Message:
    return {"type": "http.disconnect"}
