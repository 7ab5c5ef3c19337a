"""Starting the service: where it listens, and who may come in."""

import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from imondrian.errors import InvalidInputError
from imondrian.service.app import create_app
from imondrian.service.connections import Connections
from imondrian.service.guard import is_loopback
from imondrian.service.limits import ConnectionLimits
from imondrian.service.registry import Registry
from imondrian.service.sqlite import is_open_to_others, mode_of

TOKEN = "IMONDRIAN_TOKEN"  # noqa: S105 (the name of a variable)
_SHORTEST = 16


def serve(folder: Path, host: str, port: int, token_file: Path | None) -> None:
    """Serve the detectors in a folder until the process is told to end."""
    token = read_token(token_file)
    if token is None and not is_loopback(host):
        raise InvalidInputError(
            f"On {host} others could come in: put a token into a file (--token-file) or into the variable {TOKEN}."
        )
    limits = fit_descriptor_limit(ConnectionLimits())
    with _listening(host, port, limits.backlog) as listener:
        registry = Registry(folder)
        for warning in [*_warnings(token_file, limits), *registry.damage_reports, *registry.complaints()]:
            _tell(warning)
        server = uvicorn.Server(uvicorn_config(create_app(registry, token), limits, log_level="warning"))
        _end_on_signals(server)
        address = f"[{host}]" if ":" in host else host
        _tell(
            f"serving {len(registry.all())} detectors, kept in {folder}, at"
            f" http://{address}:{listener.getsockname()[1]} (Ctrl+C ends it)"
        )
        _run(server, listener)


def read_token(path: Path | None) -> str | None:
    """Read the token, from a file or the environment; there may be none."""
    if path is None:
        token = os.environ.get(TOKEN, "").strip()
        if not token:
            return None
    else:
        token = _text_of(path)
    if len(token) < _SHORTEST or not token.isascii():
        raise InvalidInputError(f"The token must have at least {_SHORTEST} characters of ASCII, but has {len(token)}.")
    return token


def _text_of(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise InvalidInputError(f"The token file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InvalidInputError(f"The token file {path} is no text.") from None


def _warnings(token_file: Path | None, limits: ConnectionLimits) -> Iterator[str]:
    """Tell what does not keep the service from starting, but should be known."""
    if token_file is not None and is_open_to_others(token_file):
        yield f"others can read the token file {token_file} (its mode is {mode_of(token_file)}): use chmod 600."
    if limits.connections < ConnectionLimits().connections:
        yield (
            f"at most {limits.connections} connections instead of {ConnectionLimits().connections},"
            " since the hard limit of file descriptors (ulimit -Hn) is too low for more."
        )


def _tell(line: str) -> None:
    sys.stderr.write(f"imondrian: {line}\n")


def _listening(host: str, port: int, backlog: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=backlog)
    except OSError as error:
        raise InvalidInputError(f"{host}:{port} cannot be listened at: {error.strerror}.") from None
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # an answer is written in two pieces
    return listener


def _end_on_signals(server: uvicorn.Server) -> None:
    """Have the signals to end remembered by the server from now on, also before it runs and after it has ended.

    The server sets the same handlers when it runs. A signal before that must not be lost, and none may interrupt.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, server.handle_exit)


def _run(server: uvicorn.Server, listener: socket.socket) -> None:
    repeats = add_repeat_filter()
    gc.collect()
    gc.freeze()  # modules and compiled kernels stay: looking through them for garbage would stop all for 100 ms
    server.run([listener])
    for line in repeats.suppressed():
        _tell(line)
    if threading.active_count() > 1:  # threads that work for clients who are gone: all that must be kept is
        sys.stderr.flush()
        os._exit(0)


def uvicorn_config(app: ASGIApp, limits: ConnectionLimits, **settings: Any) -> uvicorn.Config:
    """Return how uvicorn serves an application, with bounded connections."""
    return uvicorn.Config(
        app,
        http=cast("Any", Connections(limits).protocol),
        ws="none",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=limits.backlog,
        timeout_graceful_shutdown=limits.grace_seconds,
        **settings,
    )


if sys.platform != "win32":  # which has no such limits
    import resource

_OWN = 64  # of the process itself: files, the event loop, the listener
_FEWEST = 16  # connections


def fit_descriptor_limit(limits: ConnectionLimits) -> ConnectionLimits:
    """Raise the limit of this process as far as needed and allowed, and lower the number of connections to fit.

    Connections that are accepted together are open for some turns of the event loop before the surplus is closed.
    """
    if sys.platform == "win32":
        return limits
    n_spare = _OWN + 4 * limits.backlog
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < limits.connections + n_spare:
        wanted = limits.connections + n_spare
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        limits = limits._replace(connections=min(limits.connections, soft - n_spare))
    if limits.connections < _FEWEST:
        raise InvalidInputError(
            f"The service needs at least {_FEWEST + n_spare} file descriptors, but the limit (ulimit -n) is {soft}."
        )
    return limits


LOGGERS = ("asyncio", "uvicorn.error", "imondrian.service")
_N_LINES = 1_000  # that are remembered
_LONGEST = 1_000  # characters that tell two lines apart


class RepeatFilter(logging.Filter):
    """Lets the same line through once in some seconds, with the number of times it was kept back before.

    Lines are the same if logger, message, and type and text of an exception are.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        super().__init__()
        self._seconds, self._lock = seconds, threading.Lock()
        self._lines: dict[tuple[str, ...], tuple[float, int]] = {}  # when each was written, and how often not since

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if a line is to be written."""
        line = _line_of(record)
        with self._lock:
            written, n_suppressed = self._lines.get(line, (None, 0))
            if written is not None and record.created - written < self._seconds:
                self._lines[line] = (written, n_suppressed + 1)
                return False
            self._lines.pop(line, None)
            self._lines[line] = (record.created, 0)
            if len(self._lines) > _N_LINES:
                del self._lines[next(iter(self._lines))]
        if n_suppressed:
            record.msg, record.args = _counted(record.getMessage(), n_suppressed), ()
        return True

    def suppressed(self) -> list[str]:
        """List the lines that were counted and not written since."""
        with self._lock:
            return [_counted(line[1], n) for line, (_, n) in self._lines.items() if n]


def add_repeat_filter() -> RepeatFilter:
    """Have the repeated lines of the service, its server and its event loop counted."""
    repeats = RepeatFilter()
    for name in LOGGERS:
        logging.getLogger(name).addFilter(repeats)
    return repeats


def _line_of(record: logging.LogRecord) -> tuple[str, ...]:
    error: Any = record.exc_info[1] if record.exc_info else None
    return record.name, record.getMessage()[:_LONGEST], type(error).__name__, str(error)[:_LONGEST]


def _counted(message: str, n_suppressed: int) -> str:
    return f"{message.rstrip()} ... repeated {n_suppressed} times"
