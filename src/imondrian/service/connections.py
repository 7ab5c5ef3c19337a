"""Connections: how many there may be, what each may send before anybody reads it, and how long it may take for that."""

import asyncio
import json
from http import HTTPStatus
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from imondrian.service.safety import HEADERS
from imondrian.service.settings import Bounds

_PIECE = 2**16  # bytes that the parser gets at once
_BETWEEN_LOOKS = 1.0  # seconds


class Connections:
    """All connections of a service: closes those that take too long, and those that are too many.

    If there are too many, the one that has waited longest without a request at work makes room. So connections that do
    nothing shut nobody out; only if all are at work is a new one answered 503.
    """

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._all: dict[Connection, None] = {}
        self._waiting: dict[Connection, None] = {}  # without a request at work, the longest wait first
        self._is_looking = False

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
        if len(self._all) >= self.bounds.connections:
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

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close what takes too long, now and again while there are connections."""
        for connection in list(self._all):
            connection.close_if_late(loop.time())
        self._is_looking = bool(self._all)
        if self._is_looking:
            loop.call_later(_BETWEEN_LOOKS, self._look, loop)


class Connection(HttpToolsProtocol):
    """A connection whose heads, pipeline and pauses are bounded; all else is as uvicorn has it.

    What runs for every request calls its base by name, which takes half the time of `super()`.
    """

    def __init__(
        self,
        connections: Connections,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._others, self._bounds = connections, connections.bounds
        self._idle_since = self._body_since = self._heard = self._read = self.loop.time()
        self._head_since: float | None = None  # while a head arrives
        self._n_held = self._n_piece = 0  # bytes that the parser may hold; those of the piece it got last
        self._n_body = self._n_unread = 0
        self._is_deaf = False  # nothing more is read, and it closes with the last answer
        self._problem: tuple[HTTPStatus, str] | None = None  # for which the parser was stopped

    # -- what asyncio calls -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection in, or refuse it."""
        super().connection_made(transport)
        if not self._others.is_admitted(self):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"All {self._bounds.connections} connections are at work.")

    def connection_lost(self, exc: Exception | None) -> None:
        """Let it go."""
        self._others.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Give data to the parser in pieces, so that it never holds more than a head and two pieces."""
        self._heard = self.loop.time()
        self._n_body += len(data)
        for start in range(0, len(data), _PIECE):
            if self._is_deaf or self.transport.is_closing():
                return
            piece = data if len(data) <= _PIECE else data[start : start + _PIECE]
            self._n_piece = len(piece)
            self._n_held += self._n_piece
            HttpToolsProtocol.data_received(self, piece)
            if self._n_held > self._bounds.head_bytes + _PIECE:
                self._problem = self._head_problem()
                self.send_400_response("")

    # -- what the parser calls ----------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a head, unless too many requests wait already: those are answered, and the connection closes."""
        if len(self.pipeline) >= self._bounds.pipelined:
            self._stop(HTTPStatus.TOO_MANY_REQUESTS, f"More than {self._bounds.pipelined} requests wait.")
        self._head_since, self._n_held = self._heard, self._n_piece
        HttpToolsProtocol.on_message_begin(self)

    def on_url(self, url: bytes) -> None:
        """Take in a URL, or a part of one."""
        if len(self.url) + len(url) > self._bounds.url_bytes:
            self._stop(HTTPStatus.REQUEST_URI_TOO_LONG, f"The URL is longer than {self._bounds.url_bytes} bytes.")
        HttpToolsProtocol.on_url(self, url)

    def on_headers_complete(self) -> None:
        """Pass the request on, unless its head is too large."""
        if len(self.headers) > self._bounds.headers or (
            self._n_held > self._bounds.head_bytes and self._n_head_bytes() > self._bounds.head_bytes
        ):
            self._stop(*self._head_problem())
        self._head_since, self._body_since, self._n_body = None, self._heard, 0
        self._others.work(self)
        HttpToolsProtocol.on_headers_complete(self)

    def on_body(self, body: bytes) -> None:
        """Pass a part of a body on."""
        self._n_held = 0
        HttpToolsProtocol.on_body(self, body)

    # -- what uvicorn calls -------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        """Go on with the next request, or wait for one, without a timer of its own: all are looked at together."""
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
        if self._is_body_missing:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "The service ends.")
        else:
            super().shutdown()

    # -- what all connections together call ---------------------------------------------------------------------

    def drop(self) -> None:
        """Close the connection, though an answer may not have been read."""
        self.transport.abort() if self.transport.get_write_buffer_size() else self.transport.close()

    def close_if_late(self, now: float) -> None:
        """Close the connection if it takes too long for what it does."""
        bounds, n_unread = self._bounds, self.transport.get_write_buffer_size()
        if n_unread != self._n_unread:
            self._n_unread, self._read = n_unread, now
        if n_unread:
            if now - self._read > bounds.answer_seconds:
                self.transport.abort()
        elif self._is_at_work:
            if self._is_body_missing and not self.flow.read_paused and now > self._body_deadline():
                self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The body takes too long to arrive.")
        elif self._head_since is not None:
            if now - self._head_since > bounds.head_seconds:
                self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"The head takes longer than {bounds.head_seconds} s.")
        elif now - self._idle_since > (bounds.first_seconds if self.cycle is None else bounds.idle_seconds):
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
        bounds = self._bounds
        return bounds.body_seconds + min(self._heard, self._body_since + self._n_body / bounds.body_rate)

    def _n_head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _head_problem(self) -> tuple[HTTPStatus, str]:
        told = f"{self._bounds.headers} headers of {self._bounds.head_bytes} bytes together"
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"A request may have at most {told}."

    def _stop(self, status: HTTPStatus, detail: str) -> None:
        """Stop the parser, which has uvicorn call `send_400_response`."""
        self._problem = status, detail
        raise ValueError(detail)

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        """Answer without the application, and close."""
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
        self.transport.close()
