"""Connections: how many there may be, what each may send before anybody reads it, and how long it may take for that."""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.types import Receive, Scope
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from imondrian.service.guard import HEADERS
from imondrian.service.limits import ConnectionLimits
from imondrian.service.request_parser import RequestParser

_BETWEEN_LOOKS = 1.0  # seconds
_PARSING_SECONDS = 0.001  # for which chunks are parsed before the event loop goes on
_SHORT_REST = 2**16  # bytes of a body that are read after an answer that did not need them


class Connections:
    """All connections of a service: closes those that take too long, and those that are too many.

    If there are too many, the one that has waited longest without a request at work makes room. So connections that do
    nothing shut nobody out; only if all are at work is a new one answered 503.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._all: dict[Connection, None] = {}
        self._waiting: dict[Connection, None] = {}  # without a request at work, the longest wait first
        self._unparsed: deque[Connection] = deque()  # that wait for their turn to parse
        self._is_looking = self._is_parsing = False

    def protocol(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> "Connection":
        """Return the protocol of a new connection, as uvicorn asks for it."""
        return Connection(self, config, server_state, app_state, _loop)

    def is_admitted(self, connection: "Connection") -> bool:
        """Accept a new connection, if need be in place of another; return True if there was room."""
        if len(self._all) >= self.limits.connections:
            if not self._waiting:
                return False
            oldest = next(iter(self._waiting))
            self.leave(oldest)
            oldest.drop()
        self._all[connection] = None
        self.wait(connection)
        if not self._is_looking:
            self._is_looking = True
            connection.loop.call_later(_BETWEEN_LOOKS, self._look, connection.loop)
        return True

    def wait(self, connection: "Connection") -> None:
        """Note that a connection has no request at work from now on."""
        if connection in self._all:
            self._waiting[connection] = None

    def work(self, connection: "Connection") -> None:
        """Note that a connection has a request at work."""
        self._waiting.pop(connection, None)

    def leave(self, connection: "Connection") -> None:
        """Note that a connection is closed."""
        self._all.pop(connection, None)
        self._waiting.pop(connection, None)

    def parse_later(self, connection: "Connection") -> None:
        """Let a connection parse on when all that the event loop has to do was done once."""
        self._unparsed.append(connection)
        if not self._is_parsing:
            self._is_parsing = True
            connection.loop.call_soon(self._parse, connection.loop)

    def _parse(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let connections parse for a moment, one after the other; all others go on after that."""
        end = loop.time() + _PARSING_SECONDS
        while self._unparsed and loop.time() < end:
            self._unparsed.popleft().parse_waiting()
        self._is_parsing = bool(self._unparsed)
        if self._is_parsing:
            loop.call_soon(self._parse, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close what takes too long, now and again while there are connections."""
        for connection in list(self._all):
            connection.close_if_late(loop.time())
        self._is_looking = bool(self._all)
        if self._is_looking:
            loop.call_later(_BETWEEN_LOOKS, self._look, loop)


class Connection(RequestParser):
    """A connection that is admitted, bounded in time, and closed in such a way that the last answer can be read."""

    def __init__(
        self,
        connections: Connections,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(connections.limits, config, server_state, app_state, _loop)
        self._others = connections
        self._inner_app, self.app = self.app, self._run
        self._idle_since = self._body_since = self._read = self.loop.time()
        self._n_body = self._n_unread = 0
        self._is_last_answer = False  # the answer at work: what comes after its request is not parsed
        self._lingers_until: float | None = None  # what arrives until then is discarded

    # -- what asyncio calls -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection in, or refuse it."""
        super().connection_made(transport)
        if not self._others.is_admitted(self):
            self._write(HTTPStatus.SERVICE_UNAVAILABLE, f"All {self._limits.connections} connections are at work.")
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Let it go."""
        self._others.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Have data parsed, or discard it after the last answer."""
        self._heard = self.loop.time()
        self._n_body += len(data)
        if self._lingers_until is not None:
            if self._n_body > self._limits.linger_bytes:
                self.drop()
        elif self._unparsed:
            self._unparsed += data
        else:
            self._parse(data)

    # -- what the parser calls ----------------------------------------------------------------------------------

    def on_headers_complete(self) -> None:
        """Note that there is a request at work."""
        self._body_since, self._n_body = self._heard, 0
        RequestParser.on_headers_complete(self)
        self._others.work(self)

    def _wait_for_turn(self) -> None:
        self._others.parse_later(self)

    # -- what the application calls -----------------------------------------------------------------------------

    def _run(self, scope: Scope, receive: Receive, send: Any) -> Awaitable[None]:
        """Run the application, with an eye on when its answer begins."""
        return self._inner_app(scope, receive, partial(self._send, send.__self__))

    def _send(self, cycle: RequestResponseCycle, message: Any) -> Awaitable[None]:
        """Send a part of an answer."""
        if cycle.more_body and message["type"] == "http.response.start" and self._is_rest_long(cycle):
            return self._begin_last_answer(cycle, message)
        return cycle.send(message)

    def _is_rest_long(self, cycle: RequestResponseCycle) -> bool:
        """Return True if much of a body may still come, or it is not known how much."""
        n_told = dict(cycle.scope["headers"]).get(b"content-length")
        return cycle.waiting_for_100_continue or n_told is None or int(n_told) - self._n_parsed > _SHORT_REST

    async def _begin_last_answer(self, cycle: RequestResponseCycle, message: Any) -> None:
        """Answer a request whose body has not arrived and is not needed: the connection ends with this answer."""
        self._is_last_answer, self._is_deaf, self._unparsed = True, True, b""
        message["headers"] = [*message["headers"], (b"connection", b"close")]
        await cycle.send(message)
        cycle.keep_alive = True  # it is not closed at once, since the client could not read the answer then

    # -- what uvicorn calls -------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        """Go on with the next request, or wait for one, without a timer of its own: all are looked at together."""
        if self._is_last_answer:
            self.server_state.total_requests += 1
            self._linger()
            return
        if self.pipeline or self.transport.is_closing():
            super().on_response_complete()
            return
        self.server_state.total_requests += 1
        self.flow.resume_reading()
        self._idle_since = self.loop.time()
        if self._head_since is not None:
            self._head_since = self._idle_since
        self._others.wait(self)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request, or one that goes beyond the bounds."""
        status, detail = self._problem or (HTTPStatus.BAD_REQUEST, msg)
        if not self._is_at_work or self._is_body_missing:
            self._refuse(status, detail)
        elif self.cycle.more_body:
            self.transport.close()
        else:  # those before it are answered first, in their order
            self._is_deaf, self.cycle.keep_alive = True, False

    def shutdown(self) -> None:
        """Close when the request at work is answered; at once if it has not come as a whole."""
        if self._lingers_until is not None:
            self.drop()
        elif self._is_body_missing:
            self._write(HTTPStatus.SERVICE_UNAVAILABLE, "The service ends.")
            self.transport.close()
        else:
            super().shutdown()

    # -- what all connections together call ---------------------------------------------------------------------

    def drop(self) -> None:
        """Close the connection, though an answer may not have been read."""
        self.transport.abort() if self.transport.get_write_buffer_size() else self.transport.close()

    def close_if_late(self, now: float) -> None:
        """Close the connection if it takes too long for what it does."""
        limits, n_unread = self._limits, self.transport.get_write_buffer_size()
        if n_unread != self._n_unread:
            self._n_unread, self._read = n_unread, now
        if n_unread:
            if now - self._read > limits.response_seconds:
                self.transport.abort()
        elif self._lingers_until is not None:
            if now > self._lingers_until:
                self.transport.close()
        else:
            self._close_if_request_is_late(now)

    def _close_if_request_is_late(self, now: float) -> None:
        limits = self._limits
        if self._is_at_work:
            if self._is_body_missing and not self.flow.read_paused and now > self._body_deadline():
                self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The body takes too long to arrive.")
        elif self._head_since is not None:
            if now - self._head_since > limits.head_seconds:
                self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"The head takes longer than {limits.head_seconds} s.")
        elif now - self._idle_since > (limits.first_seconds if self.cycle is None else limits.idle_seconds):
            self.transport.close()

    @property
    def _is_at_work(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _is_body_missing(self) -> bool:
        """Whether the one request at work has not come as a whole, so that nothing has been done or answered yet."""
        return self._is_at_work and self.cycle.more_body and not self.cycle.response_started and not self.pipeline

    def _body_deadline(self) -> float:
        """Return when the body is too late: after a pause, or because it is too slow."""
        limits = self._limits
        return limits.body_seconds + min(self._heard, self._body_since + self._n_body / limits.body_rate)

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        """Answer without the application, and close."""
        self._write(status, detail)
        self._linger()

    def _linger(self) -> None:
        """Let the client read the last answer: discard what it still sends until it closes, or for a while.

        A connection that is closed while there is something to read is reset, and then the answer may be lost.
        """
        if self._is_at_work:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._lingers_until = self.loop.time() + self._limits.linger_seconds
        self._is_deaf, self._unparsed, self._n_body = True, b"", 0
        self._others.wait(self)
        self.transport.write_eof()
        self.flow.resume_reading()
        self.flow.resume_for_parser()

    def _write(self, status: HTTPStatus, detail: str) -> None:
        """Write an answer without the application."""
        content = json.dumps({"detail": detail}).encode()
        headers = {
            b"content-type": b"application/json",
            b"content-length": str(len(content)).encode(),
            b"connection": b"close",
            **({b"retry-after": b"1"} if status == HTTPStatus.SERVICE_UNAVAILABLE else {}),
            **dict(HEADERS),
        }
        lines = [b"%s: %s\r\n" % header for header in [*self.server_state.default_headers, *headers.items()]]
        first = f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode()
        self.transport.write(b"".join([first, *lines, b"\r\n", content]))
