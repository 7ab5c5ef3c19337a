"""Limits on the number of connections and on the time that they take; closing of connections."""

import asyncio
import json
import select
from collections import deque
from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.types import Receive, Scope
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
from uvicorn.server import ServerState

from imondrian.service.http.guard import HEADERS
from imondrian.service.http.request_parser import RequestParser
from imondrian.service.limits import ConnectionLimits

_CLOSED = select.POLLHUP | select.POLLERR | getattr(select, "POLLRDHUP", 0)  # POLLRDHUP: only on Linux
_CHECK_SECONDS = 1.0  # between two checks of the deadlines
_PARSING_SECONDS = 0.001  # how long chunks are parsed before the event loop continues
_SHORT_REST = 2**16  # bytes: if more of the body is missing when a response begins, the connection closes after it


class Connections:
    """All connections of a service; closes those that take too long or exceed the maximum number.

    If there are too many, the one that has been idle longest is closed, so idle connections cannot lock anybody out. A
    new connection gets 503 only if all others have an active request.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._all: dict[Connection, None] = {}
        self._idle: dict[Connection, None] = {}  # without an active request, idle longest first
        self._unparsed: deque[Connection] = deque()  # with received data that is not parsed yet
        self._is_checking = self._is_parsing = False
        self.ending = asyncio.Event()  # set when the service begins to shut down; ends responses that stream events

    def protocol(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> "Connection":
        """Return the protocol object of a new connection, for uvicorn."""
        return Connection(self, config, server_state, app_state, _loop)

    def admit(self, connection: "Connection") -> bool:
        """Accept a new connection, if necessary by closing an idle one; return False if there is no room."""
        if len(self._all) >= self.limits.connections:
            if not self._idle:
                return False
            oldest = next(iter(self._idle))
            self.remove(oldest)
            oldest.drop()
        self._all[connection] = None
        self.set_idle(connection)
        if not self._is_checking:
            self._is_checking = True
            connection.loop.call_later(_CHECK_SECONDS, self._check_deadlines, connection.loop)
        return True

    def set_idle(self, connection: "Connection") -> None:
        """Record that a connection has no active request from now on."""
        if connection in self._all:
            self._idle[connection] = None

    def set_active(self, connection: "Connection") -> None:
        """Record that a connection has an active request."""
        self._idle.pop(connection, None)

    def remove(self, connection: "Connection") -> None:
        """Record that a connection is closed."""
        self._all.pop(connection, None)
        self._idle.pop(connection, None)

    def parse_later(self, connection: "Connection") -> None:
        """Continue parsing for a connection in the next iteration of the event loop."""
        self._unparsed.append(connection)
        if not self._is_parsing:
            self._is_parsing = True
            connection.loop.call_soon(self._parse, connection.loop)

    def _parse(self, loop: asyncio.AbstractEventLoop) -> None:
        """Parse data of connections in turn for at most `_PARSING_SECONDS`; then let the event loop continue."""
        end = loop.time() + _PARSING_SECONDS
        while self._unparsed and loop.time() < end:
            self._unparsed.popleft().parse_waiting()
        self._is_parsing = bool(self._unparsed)
        if self._is_parsing:
            loop.call_soon(self._parse, loop)

    def _check_deadlines(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close connections that take too long; repeat while there are connections."""
        for connection in list(self._all):
            connection.close_if_late(loop.time())
        self._is_checking = bool(self._all)
        if self._is_checking:
            loop.call_later(_CHECK_SECONDS, self._check_deadlines, loop)


class Connection(RequestParser):
    """A connection with deadlines, closed in such a way that the client can read the last response."""

    def __init__(
        self,
        connections: Connections,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(connections.limits, config, server_state, app_state, _loop)
        self._connections = connections
        self._inner_app, self.app = self.app, self._run
        self._idle_since = self._body_since = self._last_read = self.loop.time()
        self._n_body = self._n_unread = 0
        self._is_last_response = False  # if True, nothing after the current request is parsed
        self._lingers_until: float | None = None  # input until then is discarded
        self._active_cycle: RequestResponseCycle | None = None  # of the last request passed to the application

    # -- called by asyncio --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit the connection, or refuse it."""
        super().connection_made(transport)
        if not self._connections.admit(self):
            self._write(HTTPStatus.SERVICE_UNAVAILABLE, f"All {self._limits.connections} connections are in use.")
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection; notify the active request, which may not be the one that arrived last."""
        self._connections.remove(self)
        super().connection_lost(exc)
        if self._active_cycle is not None:
            self._active_cycle.disconnected = True
            self._active_cycle.message_event.set()

    def data_received(self, data: bytes) -> None:
        """Parse data, or discard it after the last response."""
        self._last_received = self.loop.time()
        self._n_body += len(data)
        if self._lingers_until is not None:
            if self._n_body > self._limits.linger_bytes:
                self.drop()
        elif self._unparsed:
            self._unparsed += data
        else:
            self._parse(data)

    # -- called by the parser -----------------------------------------------------------------------------------

    def on_headers_complete(self) -> None:
        """Record that there is an active request."""
        self._body_since, self._n_body = self._last_received, 0
        RequestParser.on_headers_complete(self)
        self._connections.set_active(self)

    def _wait_for_turn(self) -> None:
        self._connections.parse_later(self)

    # -- called by the application ------------------------------------------------------------------------------

    def _run(self, scope: Scope, receive: Receive, send: Any) -> Awaitable[None]:
        """Run the application, and intercept what it sends."""
        self._active_cycle = send.__self__
        scope["state"] = {**scope.get("state", {}), "ending": self._connections.ending}
        return self._inner_app(scope, receive, partial(self._send, send.__self__))

    def _send(self, cycle: RequestResponseCycle, message: Any) -> Awaitable[None]:
        """Send a message of a response."""
        if cycle.more_body and message["type"] == "http.response.start" and self._is_rest_long(cycle):
            return self._begin_last_response(cycle, message)
        return cycle.send(message)

    def _is_rest_long(self, cycle: RequestResponseCycle) -> bool:
        """Return True if a large or unknown part of the body has not arrived yet."""
        length = dict(cycle.scope["headers"]).get(b"content-length")
        return cycle.waiting_for_100_continue or length is None or int(length) - self._n_parsed > _SHORT_REST

    async def _begin_last_response(self, cycle: RequestResponseCycle, message: Any) -> None:
        """Begin a response that does not wait for the body of its request; the connection is closed after it."""
        self._is_last_response, self._is_input_ignored, self._unparsed = True, True, b""
        message["headers"] = [*message.get("headers", []), (b"connection", b"close")]
        await cycle.send(message)
        cycle.keep_alive = True  # closing at once could prevent the client from reading the response

    # -- called by uvicorn --------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        """Continue with the next request, or wait for one; no timer is set, as all deadlines are checked together."""
        if self._is_last_response:
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
        self._connections.set_idle(self)

    def send_400_response(self, msg: str) -> None:
        """Respond to an invalid request, or to one that exceeds a limit."""
        status, detail = self._problem or (HTTPStatus.BAD_REQUEST, msg)
        if not self._is_active or self._is_body_missing:
            self._refuse(status, detail)
        elif self.cycle.more_body:
            self.transport.close()
        else:  # the requests before it get their responses first
            self._is_input_ignored, self.cycle.keep_alive = True, False

    def shutdown(self) -> None:
        """Close after the response to the active request, or at once if that request has not arrived completely."""
        self._connections.ending.set()
        if self._lingers_until is not None:
            self.drop()
        elif self._is_body_missing:
            self._write(HTTPStatus.SERVICE_UNAVAILABLE, "The service is shutting down.")
            self.transport.close()
        else:
            super().shutdown()

    # -- called by `Connections` --------------------------------------------------------------------------------

    def drop(self) -> None:
        """Close the connection, even if a response has not been read."""
        self.transport.abort() if self.transport.get_write_buffer_size() else self.transport.close()

    def close_if_late(self, now: float) -> None:
        """Close the connection if it has passed a deadline."""
        limits, n_unread = self._limits, self.transport.get_write_buffer_size()
        if n_unread != self._n_unread:
            self._n_unread, self._last_read = n_unread, now
        if n_unread:
            if now - self._last_read > limits.response_seconds:
                self.transport.abort()
        elif self._lingers_until is not None:
            if now > self._lingers_until:
                self.transport.close()
        else:
            self._close_if_request_is_late(now)

    def _close_if_request_is_late(self, now: float) -> None:
        limits = self._limits
        if self._is_active:
            if self.pipeline and has_closed(self.transport):  # nothing else notices it while reading is paused
                self.transport.abort()
            elif self._is_body_missing and not self.flow.read_paused and now > self._body_deadline():
                self._refuse(HTTPStatus.REQUEST_TIMEOUT, "The body takes too long to arrive.")
        elif self._head_since is not None:
            if now - self._head_since > limits.head_seconds:
                self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"The head takes longer than {limits.head_seconds} s.")
        elif now - self._idle_since > (limits.first_seconds if self.cycle is None else limits.idle_seconds):
            self.transport.close()

    @property
    def _is_active(self) -> bool:
        """Whether there is a request without a complete response."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _is_body_missing(self) -> bool:
        """Whether the only active request has not arrived completely, so that nothing has been done or sent yet."""
        return self._is_active and self.cycle.more_body and not self.cycle.response_started and not self.pipeline

    def _body_deadline(self) -> float:
        """Return the time at which the body is late: it has paused for too long, or is too slow on average."""
        limits = self._limits
        return limits.body_seconds + min(self._last_received, self._body_since + self._n_body / limits.body_rate)

    def _refuse(self, status: HTTPStatus, detail: str) -> None:
        """Respond without the application, and close the connection."""
        if self._lingers_until is None:
            self._write(status, detail)
            self._linger()

    def _linger(self) -> None:
        """Let the client read the last response: discard its input until it closes the connection, or until a deadline.

        Closing a connection with unread input resets it, and the client may lose the response.
        """
        if self._is_active:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._lingers_until = self.loop.time() + self._limits.linger_seconds
        self._is_input_ignored, self._unparsed, self._n_body = True, b"", 0
        self._connections.set_idle(self)
        with suppress(OSError):  # the client may already have closed the connection
            self.transport.write_eof()
        self.flow.resume_reading()
        self.flow.resume_for_parser()

    def _write(self, status: HTTPStatus, detail: str) -> None:
        """Write a response without the application."""
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


def has_closed(transport: asyncio.Transport) -> bool:
    """Return True if the client has closed its side of a connection, even if data before that is unread."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), _CLOSED)
    return bool(poll.poll(0))
