"""Who may come in, how much they may bring and take, and what every answer tells a browser."""

import asyncio
import hmac
import ipaddress
from collections.abc import Awaitable
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from imondrian.service.capacity import MemoryBudget, RequestMemory
from imondrian.service.errors import BodyTooLongError, CapacityError
from imondrian.service.limits import KIB, MIB, PER_BYTE_OF_MODELS, PER_BYTE_OF_POINTS, Limits

_OPEN = ("/health", "/")
_STATIC = "/static/"
_WITH_POINTS = {"points", "scores", "explanations"}
_SMALL, _LARGE = 16 * KIB, MIB  # bytes of a body that is not counted, and of an answer that is
_MAX_DIGITS = 18  # of a length
_PIECE = 2**16  # bytes of an answer that wait to be sent
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
    """Lets in who has the token, or without one who comes from this machine; bounds bodies; keeps browsers safe.

    A page of another site, opened in a browser on this machine, can reach a loopback address too, by its number or by a
    name that its owner has pointed there. So without a token the host that a request names must be this machine, and
    always its origin, if a browser tells one, must be the service's own page.
    """

    def __init__(self, app: ASGIApp, token: str | None, limits: Limits, memory: MemoryBudget) -> None:
        self._app, self._limits, self._memory = app, limits, memory
        self._token = None if token is None else b"Bearer " + token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        n_most, per_byte = self._most_bytes(scope["path"])
        refusal = self._refusal(scope, headers, n_most)
        if refusal is not None:
            await refusal(scope, receive, _Answer(send, RequestMemory(self._memory)))
            return
        account, n_told = RequestMemory(self._memory), int(headers.get(b"content-length", b"0"))
        answer = _Answer(send, account, is_shared=scope["path"].startswith(_STATIC))
        try:
            if n_told > _SMALL:
                account.reserve(per_byte * n_told)
            await self._app(scope, _bounded(receive, n_most, n_told, per_byte, account), answer)
        except CapacityError as error:
            await _full(error)(scope, receive, _Answer(send, account))
        except asyncio.CancelledError:  # the service ends, and its patience too
            if not answer.is_begun:
                await _ending()(scope, receive, answer)
        finally:
            account.close()

    def _most_bytes(self, path: str) -> tuple[int, int]:
        """Return how long a body may be, and how much memory each of its bytes takes."""
        last = path.rpartition("/")[2]
        if last == "model":
            return self._limits.model_bytes, PER_BYTE_OF_MODELS
        n_most = self._limits.body_bytes if last in _WITH_POINTS else self._limits.configuration_bytes
        return n_most, PER_BYTE_OF_POINTS

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes], n_most: int) -> JSONResponse | None:
        """Answer a request that must not come in."""
        host = headers.get(b"host", b"").decode("latin-1")
        if self._token is None and not is_loopback(_hostname(f"//{host}")):
            return JSONResponse({"detail": "The host of the request is not this machine."}, 403)
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").partition("://")[2] != host:
            return JSONResponse({"detail": "The request comes from the page of another site."}, 403)
        is_trusted = self._token is None or hmac.compare_digest(headers.get(b"authorization", b""), self._token)
        scope["state"] = {**scope.get("state", {}), "is_trusted": is_trusted}
        if not is_trusted and scope["path"] not in _OPEN and not scope["path"].startswith(_STATIC):
            return JSONResponse({"detail": "A token is needed."}, 401, {"WWW-Authenticate": "Bearer"})
        n_bytes = headers.get(b"content-length", b"0")
        if not n_bytes.isdigit() or len(n_bytes) > _MAX_DIGITS or int(n_bytes) > n_most:
            return JSONResponse({"detail": f"The body is longer than {n_most} bytes."}, 413)
        return None


@lru_cache(64)
def _hostname(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").rstrip(".")
    except ValueError:
        return ""


@lru_cache(64)
def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _ending() -> JSONResponse:
    return JSONResponse({"detail": "The service ends before the request is done."}, 503, {"Retry-After": "1"})


def _full(error: CapacityError) -> JSONResponse:
    return JSONResponse({"detail": str(error)}, 503, {"Retry-After": "1"})


def _bounded(receive: Receive, n_most: int, n_told: int, per_byte: int, account: RequestMemory) -> Receive:
    """Read no more of a body than allowed, and count what it takes, also of one that does not tell its length."""
    n_read, n_counted = 0, n_told

    async def bounded() -> Message:
        nonlocal n_read, n_counted
        message = await receive()
        n_read += len(message.get("body", b""))
        if n_read > n_most:
            raise BodyTooLongError(f"The body is longer than {n_most} bytes.")
        if n_read > n_counted and n_read > _SMALL:
            account.reserve(per_byte * (n_read - n_counted))
            n_counted = n_read
        return message

    return bounded


class _Answer:
    """Sends an answer with the headers that keep browsers safe, a large one in pieces while the client reads them.

    A large answer is counted as memory in use until the client has read it; if there is no room, it is answered 503.
    A file of the page is not: it is in memory once for all who read it, and each of them has a piece of it at most.
    """

    def __init__(self, send: Send, account: RequestMemory, *, is_shared: bool = False) -> None:
        self._send, self._account, self._is_shared, self._is_replaced = send, account, is_shared, False
        self.is_begun = False

    def __call__(self, message: Any) -> Awaitable[None]:
        """Send a part of an answer."""
        if message["type"] == "http.response.start":
            self.is_begun = True
            return self._start(message)
        if self._is_replaced:
            return _nothing()
        return self._send(message) if len(message.get("body", b"")) <= _PIECE else self._in_pieces(message)

    async def _start(self, message: Any) -> None:
        present = dict(message["headers"])
        n_bytes = int(present.get(b"content-length", b"0"))
        if n_bytes > _LARGE and not self._is_shared:
            try:
                self._account.reserve(n_bytes)
            except CapacityError as error:
                await _full(error)({"type": "http"}, _unread, _Answer(self._send, self._account))
                self._is_replaced = True
                return
        message["headers"] = [*message["headers"], *(each for each in HEADERS if each[0] not in present)]
        await self._send(message)

    async def _in_pieces(self, message: Any) -> None:
        body = message["body"]
        for start in range(0, len(body), _PIECE):
            is_last = start + _PIECE >= len(body)
            piece = {"body": body[start : start + _PIECE], "more_body": not is_last or message.get("more_body", False)}
            await self._send({**message, **piece})


async def _nothing() -> None:
    """Send nothing."""


async def _unread() -> Message:
    return {"type": "http.disconnect"}
