"""Who may come in, how much they may bring, and what every answer tells a browser."""

import hmac
import ipaddress
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from imondrian.errors import ImondrianError
from imondrian.service.settings import Limits

_OPEN = ("/health", "/")
_STATIC = "/static/"
_WITH_POINTS = {"points", "scores", "explanations"}
_HEADERS = tuple(
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


class TooLongError(ImondrianError):
    """The body of a request is larger than allowed."""


class Guard:
    """Lets in who has the token, or without one who comes from this machine; bounds bodies; keeps browsers safe.

    A page of another site, opened in a browser on this machine, can reach a loopback address too, by its number or by a
    name that its owner has pointed there. So without a token the host that a request names must be this machine, and
    always its origin, if a browser tells one, must be the service's own page.
    """

    def __init__(self, app: ASGIApp, token: str | None, limits: Limits) -> None:
        self._app, self._limits = app, limits
        self._token = None if token is None else b"Bearer " + token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        n_most = self._most_bytes(scope["path"])
        refusal = self._refusal(scope, dict(scope["headers"]), n_most)
        if refusal is None:
            await self._app(scope, _bounded(receive, n_most), _safely(send))
        else:
            await refusal(scope, receive, _safely(send))

    def _most_bytes(self, path: str) -> int:
        """Tell how long a body may be."""
        last = path.rpartition("/")[2]
        if last in _WITH_POINTS:
            return self._limits.body_bytes
        return self._limits.model_bytes if last == "model" else self._limits.configuration_bytes

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
        if not n_bytes.isdigit() or int(n_bytes) > n_most:
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


def _bounded(receive: Receive, n_most: int) -> Receive:
    """Read no more of a body than allowed, also of one that does not tell its length."""
    n_read = 0

    async def bounded() -> Message:
        nonlocal n_read
        message = await receive()
        n_read += len(message.get("body", b""))
        if n_read > n_most:
            raise TooLongError(f"The body is longer than {n_most} bytes.")
        return message

    return bounded


def _safely(send: Send) -> Send:
    """Add headers to every answer."""

    async def safe(message: Any) -> None:
        if message["type"] == "http.response.start":
            present = {name for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(each for each in _HEADERS if each[0] not in present)]
        await send(message)

    return safe
