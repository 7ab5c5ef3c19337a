"""Parsing of requests as their bytes arrive: in pieces, with bounded heads and chunks, and without upgrades."""

import asyncio
from http import HTTPStatus
from typing import Any, NoReturn

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from imondrian.service.limits import ConnectionLimits

_PIECE = 2**16  # bytes of a body with a Content-Length that the parser gets at once
_INVALID = "Invalid HTTP request received."
_SMALL_PIECE = 2**12  # bytes of anything else, since each chunk and each header is a call of Python


class Flow(FlowControl):
    """Reads only while neither the application nor the parser is behind."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._is_application_behind = self._is_parser_behind = False

    def pause_reading(self) -> None:
        """Note that the application is behind."""
        self._is_application_behind = True
        super().pause_reading()

    def resume_reading(self) -> None:
        """Note that the application wants more."""
        self._is_application_behind = False
        if not self._is_parser_behind:
            super().resume_reading()

    def pause_for_parser(self) -> None:
        """Note that the parser is behind."""
        self._is_parser_behind = True
        super().pause_reading()

    def resume_for_parser(self) -> None:
        """Note that the parser wants more."""
        self._is_parser_behind = False
        if not self._is_application_behind:
            super().resume_reading()


class RequestParser(HttpToolsProtocol):
    """Feeds the parser, and stops it when a request goes beyond the bounds; all else is as uvicorn has it.

    A client may ask for another protocol (`Upgrade`). There is none, so the request is served as if it had not asked.
    But httptools takes all that follows such a head for the other protocol, and may then parse the body as a request.
    So a new parser gets the head without that header, and then the rest.

    Headers after a chunked body (trailers) are ignored.

    What runs for every request calls its base by name, which takes half the time of `super()`.
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
        self._heard = self.loop.time()
        self._head_since: float | None = None  # while a head arrives
        self._n_held = self._n_piece = 0  # bytes that the parser may hold; those of the piece it got last
        self._n_next = _SMALL_PIECE
        self._n_chunks = self._n_parsed = 0  # chunks of the body, and bytes of it
        self._has_chunks = False  # in the piece that the parser got last
        self._unparsed = b""  # what waits for its turn to be parsed
        self._is_upgrade = False  # the head that has arrived asks for another protocol
        self._is_deaf = False  # nothing more is read, and it closes with the last answer
        self._problem: tuple[HTTPStatus, str] | None = None  # for which the parser was stopped

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to read."""
        super().connection_made(transport)
        self.flow = Flow(transport)

    def parse_waiting(self) -> None:
        """Parse what waits for its turn, some of it at least."""
        data, self._unparsed = self._unparsed, b""
        self._parse(data)
        if not self._unparsed:
            self.flow.resume_for_parser()

    def _wait_for_turn(self) -> None:
        """Have `parse_waiting` called when other connections have had their turn."""
        raise NotImplementedError

    def _parse(self, data: bytes) -> None:
        """Give data to the parser in pieces; after a piece with chunks, which take long, others have their turn."""
        start = 0
        while start < len(data) and not (self._is_deaf or self.transport.is_closing()):
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
            if self._n_held > self._limits.head_bytes + _PIECE:
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
        """Parse the head again without the wish for another protocol, then what follows it."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":  # by which the rest is never HTTP
            self.send_400_response("CONNECT is not served.")
            return
        lines = [b"%s: %s\r\n" % header for header in self.headers if header[0] != b"upgrade"]
        head = b"%s %s HTTP/%s\r\n%s\r\n" % (method, self.url, version, b"".join(lines))
        self._is_upgrade = False
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._feed(head)
        if rest and not (self._is_deaf or self.transport.is_closing()):
            self._feed(rest)

    # -- what the parser calls ----------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Begin a head, unless too many requests wait already: those are answered, and the connection closes."""
        if len(self.pipeline) >= self._limits.pipelined:
            self._stop(HTTPStatus.TOO_MANY_REQUESTS, f"More than {self._limits.pipelined} requests wait.")
        self._head_since, self._n_held = self._heard, self._n_piece
        self._n_chunks = self._n_parsed = 0
        HttpToolsProtocol.on_message_begin(self)

    def on_url(self, url: bytes) -> None:
        """Take in a URL, or a part of one."""
        if len(self.url) + len(url) > self._limits.url_bytes:
            self._stop(HTTPStatus.REQUEST_URI_TOO_LONG, f"The URL is longer than {self._limits.url_bytes} bytes.")
        HttpToolsProtocol.on_url(self, url)

    def on_headers_complete(self) -> None:
        """Pass the request on, unless its head is too large."""
        if len(self.headers) > self._limits.headers or (
            self._n_held > self._limits.head_bytes and self._n_head_bytes() > self._limits.head_bytes
        ):
            self._stop(*self._head_problem())
        if self.parser.should_upgrade():
            self._is_upgrade = True
            return
        self._head_since = None
        HttpToolsProtocol.on_headers_complete(self)
        self.headers = []  # for those after a chunked body, which nobody reads

    def on_chunk_header(self) -> None:
        """Count a chunk, and refuse a body of very many small ones."""
        self._has_chunks = True
        self._n_chunks += 1
        limits = self._limits
        if self._n_chunks > limits.chunks and self._n_chunks > limits.chunks + self._n_parsed // limits.chunk_bytes:
            told = f"{limits.chunks} chunks and one more for each {limits.chunk_bytes} bytes"
            self._stop(HTTPStatus.BAD_REQUEST, f"A body may have at most {told}.")

    def on_body(self, body: bytes) -> None:
        """Pass a part of a body on."""
        self._n_held = 0
        self._n_parsed += len(body)
        self._n_next = _SMALL_PIECE if self._n_chunks else _PIECE
        HttpToolsProtocol.on_body(self, body)

    def on_message_complete(self) -> None:
        """Note that a request has arrived as a whole, unless its head is to be parsed again."""
        self._n_next = _SMALL_PIECE
        if not self._is_upgrade:
            HttpToolsProtocol.on_message_complete(self)

    def _n_head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _head_problem(self) -> tuple[HTTPStatus, str]:
        told = f"{self._limits.headers} headers of {self._limits.head_bytes} bytes together"
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"A request may have at most {told}."

    def _stop(self, status: HTTPStatus, detail: str) -> NoReturn:
        """Stop the parser, which then calls `send_400_response`."""
        self._problem = status, detail
        raise ValueError(detail)
