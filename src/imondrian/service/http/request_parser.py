"""Parsing of HTTP requests as their bytes arrive: in pieces, with limits on heads and chunks; upgrades are ignored."""

import asyncio
from http import HTTPStatus
from typing import Any, NoReturn

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from imondrian.service.limits import ConnectionLimits

_PIECE = 2**16  # bytes of a body with a Content-Length that are parsed at once
_INVALID = "Invalid HTTP request received."
# bytes of a head or a chunked body that are parsed at once; few, because each chunk and each header costs a Python call
_SMALL_PIECE = 2**12


class Flow(FlowControl):
    """Flow control that pauses reading while the application or the parser is behind."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._is_application_behind = self._is_parser_behind = False

    def pause_reading(self) -> None:
        """Record that the application is behind."""
        self._is_application_behind = True
        super().pause_reading()

    def resume_reading(self) -> None:
        """Record that the application is ready for more."""
        self._is_application_behind = False
        if not self._is_parser_behind:
            super().resume_reading()

    def pause_for_parser(self) -> None:
        """Record that the parser is behind."""
        self._is_parser_behind = True
        super().pause_reading()

    def resume_for_parser(self) -> None:
        """Record that the parser is ready for more."""
        self._is_parser_behind = False
        if not self._is_application_behind:
            super().resume_reading()


class RequestParser(HttpToolsProtocol):
    """The protocol of uvicorn, with limits on requests.

    A client may request another protocol with the header `Upgrade`. No other is supported, so the header is ignored.
    But after such a head, httptools considers the request complete, and may parse its body as the next request.
    Therefore a new parser gets the head without that header, and then the rest.

    Headers after a chunked body (trailers) are ignored.

    Methods that run for every request call their base class by name, which takes half as long as `super()`.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.flow: Flow
        self._limits = limits
        self._last_received = self.loop.time()
        self._head_since: float | None = None  # when the current head began to arrive
        self._n_held = self._n_piece = 0  # bytes that the parser may be holding; bytes of its last piece
        self._n_next = _SMALL_PIECE  # bytes of the next piece
        self._n_chunks = self._n_parsed = 0  # chunks and bytes of the body
        self._has_chunks = False  # whether the last piece contained chunks
        self._unparsed = b""  # received, but not parsed yet
        self._is_upgrade = False  # the head asks for another protocol
        self._is_input_ignored = False  # nothing more is parsed, and the last response closes the connection
        self._problem: tuple[HTTPStatus, str] | None = None  # why the parser was stopped

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start reading."""
        super().connection_made(transport)
        self.flow = Flow(transport)

    def parse_waiting(self) -> None:
        """Parse at least a part of the unparsed data."""
        data, self._unparsed = self._unparsed, b""
        self._parse(data)
        if not self._unparsed:
            self.flow.resume_for_parser()

    def _wait_for_turn(self) -> None:
        """Arrange that `parse_waiting` is called after other connections have been served."""
        raise NotImplementedError

    def _parse(self, data: bytes) -> None:
        """Parse data in pieces; after a piece with chunks, which are slow to parse, let other connections continue."""
        start = 0
        while start < len(data) and not (self._is_input_ignored or self.transport.is_closing()):
            if self._has_chunks:
                self._has_chunks, self._unparsed = False, data[start:]
                self.flow.pause_for_parser()
                self._wait_for_turn()
                return
            piece = data[start : start + self._n_next]
            self._n_piece = len(piece)
            self._n_held += self._n_piece
            start += self._n_piece
            self._feed(piece)
            if self._n_held > self._limits.head_bytes + _PIECE and not self._is_input_ignored:
                self._problem = self._head_problem()
                self.send_400_response("")
        self._has_chunks = False

    def _feed(self, piece: bytes) -> None:
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            self._feed_without_upgrade(piece[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.logger.warning(_INVALID)
            self.send_400_response(_INVALID)

    def _feed_without_upgrade(self, rest: bytes) -> None:
        """Parse the head again without the header `Upgrade`, then the rest."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":  # what follows is not HTTP
            self.send_400_response("CONNECT is not supported.")
            return
        lines = [b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        head = b"%s %s HTTP/%s\r\n%s\r\n" % (method, self.url, version, b"".join(lines))
        self._is_upgrade = False
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._feed(head)
        if rest and not (self._is_input_ignored or self.transport.is_closing()):
            self._feed(rest)

    # -- called by the parser -----------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a head; if too many requests are queued, answer those and close the connection."""
        if len(self.pipeline) >= self._limits.pipelined:
            self._stop(HTTPStatus.TOO_MANY_REQUESTS, f"More than {self._limits.pipelined} requests are queued.")
        self._head_since, self._n_held = self._last_received, self._n_piece
        self._n_chunks = self._n_parsed = 0
        HttpToolsProtocol.on_message_begin(self)

    def on_url(self, url: bytes) -> None:
        """Append a part of the URL."""
        if len(self.url) + len(url) > self._limits.url_bytes:
            self._stop(HTTPStatus.REQUEST_URI_TOO_LONG, f"The URL is longer than {self._limits.url_bytes} bytes.")
        HttpToolsProtocol.on_url(self, url)

    def on_headers_complete(self) -> None:
        """Pass the request to the application, unless its head is too large."""
        if len(self.headers) > self._limits.headers or (
            self._n_held > self._limits.head_bytes and self._n_head_bytes() > self._limits.head_bytes
        ):
            self._stop(*self._head_problem())
        if self.parser.should_upgrade():
            self._is_upgrade = True
            return
        self._head_since = None
        HttpToolsProtocol.on_headers_complete(self)
        self.headers = []  # collects trailers, which are ignored

    def on_chunk_header(self) -> None:
        """Count a chunk, and refuse a body of too many small chunks."""
        self._has_chunks = True
        self._n_chunks += 1
        limits = self._limits
        if self._n_chunks > limits.chunks and self._n_chunks > limits.chunks + self._n_parsed // limits.chunk_bytes:
            allowed = f"{limits.chunks} chunks and one more for each {limits.chunk_bytes} bytes"
            self._stop(HTTPStatus.BAD_REQUEST, f"A body may have at most {allowed}.")

    def on_body(self, body: bytes) -> None:
        """Pass a part of the body to the application."""
        self._n_held = 0
        self._n_parsed += len(body)
        self._n_next = _SMALL_PIECE if self._n_chunks else _PIECE
        HttpToolsProtocol.on_body(self, body)

    def on_message_complete(self) -> None:
        """Complete the request, unless its head must be parsed again; read on, to notice if the client disconnects."""
        self._n_next = _SMALL_PIECE
        if not self._is_upgrade:
            HttpToolsProtocol.on_message_complete(self)
            if not self.pipeline:
                self.flow.resume_reading()

    def _n_head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _head_problem(self) -> tuple[HTTPStatus, str]:
        limits = f"{self._limits.headers} headers, and its URL and headers at most {self._limits.head_bytes} bytes"
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"A request may have at most {limits} in total."

    def _stop(self, status: HTTPStatus, detail: str) -> NoReturn:
        """Stop httptools by raising an error; `_feed` then calls `send_400_response`."""
        self._problem = status, detail
        raise ValueError(detail)
