"""Start the service: read the token, open the listening socket, handle signals, and suppress repeated log lines.

The limit on file descriptors is raised before the socket is opened, if that is possible and necessary.
"""

import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from imondrian.base.errors import InvalidInputError
from imondrian.service.delivery.receivers import receivers_of
from imondrian.service.detectors.registry import Registry
from imondrian.service.http.asgi import create_app
from imondrian.service.http.connections import Connections
from imondrian.service.http.guard import is_loopback
from imondrian.service.http.startup import StartingApp, compile_kernels
from imondrian.service.limits import DESCRIPTORS_PER_KEY_FILE, ConnectionLimits, Limits
from imondrian.service.storage.sqlite import is_open_to_others, mode_of

if sys.platform != "win32":  # Windows has no limit on file descriptors
    import resource

TOKEN = "IMONDRIAN_TOKEN"  # noqa: S105 (the name of a variable)
LOGGERS = ("asyncio", "uvicorn.error", "imondrian.service")
_MIN_SECRET_LENGTH = 16  # of the token, and of the key for signatures
_OWN_DESCRIPTORS = 64  # of the process itself: files, the event loop, the listening socket
_MIN_CONNECTIONS = 16
_SWITCH_SECONDS = 0.001  # how long a thread may hold the GIL: with the usual 5 ms, many busy threads delay /health
_N_LINES = 1_000  # log lines that the filter remembers
_LINE_LENGTH = 1_000  # only this many characters of log lines are compared


def serve(
    folder: Path,
    host: str,
    port: int,
    token_file: Path | None,
    notify: Sequence[str] = (),
    secret_file: Path | None = None,
    max_bytes: int | None = None,
) -> None:
    """Serve the detectors in a folder until the process receives SIGINT or SIGTERM.

    Parameters
    ----------
    folder : Path
        Where the detectors are stored; created if it does not exist.
    host : str
        The address to listen on; any address other than loopback requires a token.
    port : int
        The port to listen on.
    token_file : Path or None
        A file that contains the token; if None, the environment variable `IMONDRIAN_TOKEN` is used.
    notify : sequence of str, optional
        URLs that are notified when an incident opens or closes.
    secret_file : Path, optional
        A file that contains the key with which notifications are signed.
    max_bytes : int, optional
        Maximum memory of all detectors together; by default that of `Limits`.
    """
    token = read_token(token_file)
    receivers = receivers_of(notify, read_secret(secret_file))
    if token is None and not is_loopback(host):
        raise InvalidInputError(
            f"Listening on {host} requires a token, since other machines can reach it: put one into a file"
            f" (--token-file) or into the environment variable {TOKEN}."
        )
    detector_limits = Limits() if max_bytes is None else Limits(total_bytes=max_bytes)
    limits, detector_limits = fit_descriptor_limit(ConnectionLimits(), detector_limits)
    with _listen(host, port, limits.backlog) as listener:
        for warning in _warnings(token_file, secret_file, limits, detector_limits):
            _print(warning)
        address = f"[{host}]" if ":" in host else host
        for receiver in receivers:
            _print(f"incidents are reported to {receiver.label}")
        where = f"stored in {folder}, at http://{address}:{listener.getsockname()[1]} (Ctrl+C to stop)"
        open_registry = partial(Registry, folder, detector_limits, receivers=receivers)
        _run(open_registry, token, where, listener, limits)


def read_token(path: Path | None) -> str | None:
    """Return the token from a file or, if no file is given, from the environment; None if there is none."""
    if path is None:
        token = os.environ.get(TOKEN, "").strip()
        if not token:
            return None
    else:
        token = _text_of(path, "token")
    return _checked_secret(token, "token")


def read_secret(path: Path | None) -> bytes | None:
    """Return the key for signatures from a file; None if no file is given."""
    return None if path is None else _checked_secret(_text_of(path, "secret"), "secret").encode()


def _checked_secret(secret: str, what: str) -> str:
    if len(secret) < _MIN_SECRET_LENGTH or not secret.isascii():
        note = "" if secret.isascii() else ", some of them not ASCII"
        raise InvalidInputError(
            f"The {what} must have at least {_MIN_SECRET_LENGTH} characters, all of them ASCII,"
            f" but has {len(secret)}{note}."
        )
    return secret


def _text_of(path: Path, what: str) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        raise InvalidInputError(f"The {what} file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InvalidInputError(f"The {what} file {path} is not text.") from None


def _warnings(
    token_file: Path | None, secret_file: Path | None, limits: ConnectionLimits, detector_limits: Limits
) -> Iterator[str]:
    """Yield problems that do not prevent the service from starting."""
    for what, file in (("token", token_file), ("secret", secret_file)):
        if file is not None and is_open_to_others(file):
            yield f"other users can read the {what} file {file} (its mode is {mode_of(file)}): use chmod 600."
    usual = ConnectionLimits().connections, Limits().keyed_detectors
    if limits.connections < usual[0] or detector_limits.keyed_detectors < usual[1]:
        yield (
            f"at most {limits.connections} connections instead of {usual[0]}, and"
            f" {detector_limits.keyed_detectors} detectors with a key instead of {usual[1]}, because"
            " the hard limit on file descriptors (ulimit -Hn) is too low."
        )


def _print(line: str) -> None:
    sys.stderr.write(f"imondrian: {line}\n")


def _listen(host: str, port: int, backlog: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=backlog)
    except OSError as error:
        raise InvalidInputError(f"Cannot listen on {host}:{port}: {error.strerror}.") from None
    # a response is written in two pieces, and the second must not wait for an acknowledgement of the first
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


class _Progress:
    """What the service is doing before it is ready, and how long ago it was started."""

    def __init__(self) -> None:
        self._start, self._doing = time.monotonic(), "starting"

    def set(self, doing: str) -> None:
        """Set what the service is doing now."""
        self._doing = doing

    def print(self) -> None:
        _print(f"{self._doing} ({time.monotonic() - self._start:.0f} s since the start)")


def _run(
    open_registry: Callable[..., Registry],
    token: str | None,
    where: str,
    listener: socket.socket,
    limits: ConnectionLimits,
) -> None:
    """Serve until a signal arrives; while the detectors are being recovered, every request gets 503."""
    lines, progress = list[str](), _Progress()

    def make() -> ASGIApp:
        registry = open_registry(report=progress.set)
        progress.set("compiling, which is only necessary after an installation or an upgrade")
        compile_kernels()
        n_detectors = len(registry.all())
        serving = f"serving {n_detectors} detector{'s' * (n_detectors != 1)}, {where}"
        lines.extend([*registry.damage_reports, *registry.problems(), serving])
        return create_app(registry, token)

    def on_ready() -> None:
        for line in lines:
            _print(line)
        gc.collect()
        gc.freeze()  # modules and compiled kernels are permanent: scanning them would stop all threads for 100 ms

    def on_failure() -> None:
        server.should_exit = True

    app = StartingApp(make, progress.print, on_ready, on_failure)
    server = uvicorn.Server(uvicorn_config(app, limits, log_level="warning"))
    _end_on_signals(server)
    repeats = add_repeat_filter()
    sys.setswitchinterval(_SWITCH_SECONDS)
    server.run([listener])
    for line in repeats.suppressed():
        _print(line)
    if app.error is not None:
        raise app.error
    if threading.active_count() > 1:  # threads still work for disconnected clients; all data is on the disk
        sys.stderr.flush()
        os._exit(0)


def _end_on_signals(server: uvicorn.Server) -> None:
    """Make the server remember shutdown signals, even before it runs and after it has ended.

    The server installs the same handlers while it runs. A signal before or after that must be handled, too: it must not
    be lost, and must not interrupt the process.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, server.handle_exit)


def uvicorn_config(app: ASGIApp, limits: ConnectionLimits, **settings: Any) -> uvicorn.Config:
    """Return the uvicorn configuration for an application, with limits on connections."""
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


def fit_descriptor_limit(connections: ConnectionLimits, detectors: Limits) -> tuple[ConnectionLimits, Limits]:
    """Raise the limit on file descriptors as far as needed and allowed; return limits that fit into it.

    Some descriptors are kept spare: connections that are accepted together stay open for a few iterations of the event
    loop before those above the limit are closed. If the remaining descriptors do not suffice, connections get at most
    half of the remaining ones, and detectors with a key get the rest, so that neither can use up the descriptors of the
    other.
    """
    if sys.platform == "win32":
        return connections, detectors
    n_spare = _OWN_DESCRIPTORS + 4 * connections.backlog
    n_needed = n_spare + connections.connections + DESCRIPTORS_PER_KEY_FILE * detectors.keyed_detectors
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= n_needed:
        return connections, detectors
    soft = n_needed if hard == resource.RLIM_INFINITY else min(n_needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    n_connections = min(connections.connections, (soft - n_spare) // 2)
    if n_connections < _MIN_CONNECTIONS:
        raise InvalidInputError(
            f"The service needs at least {2 * _MIN_CONNECTIONS + n_spare} file descriptors, but the limit (ulimit -n)"
            f" is {soft}."
        )
    n_keyed = (soft - n_spare - n_connections) // DESCRIPTORS_PER_KEY_FILE
    return connections._replace(connections=n_connections), detectors._replace(keyed_detectors=n_keyed)


class RepeatFilter(logging.Filter):
    """Passes a repeated log line once per interval, with the number of repeats that were suppressed.

    Lines are the same if the logger, the message, and the type and text of the exception are the same.
    """

    def __init__(self, seconds: float = 60.0) -> None:
        super().__init__()
        self._seconds, self._lock = seconds, threading.Lock()
        # by line: when it was last written, and how many repeats were suppressed since then
        self._lines: dict[tuple[str, ...], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if a line should be written."""
        line, now = _key_of(record), time.monotonic()  # not `record.created`: the system clock may be set back
        with self._lock:
            written, n_suppressed = self._lines.get(line, (None, 0))
            if written is not None and now - written < self._seconds:
                self._lines[line] = (written, n_suppressed + 1)
                return False
            self._lines.pop(line, None)
            self._lines[line] = (now, 0)
            if len(self._lines) > _N_LINES:
                del self._lines[next(iter(self._lines))]
        if n_suppressed:
            record.msg, record.args = _with_count(record.getMessage(), n_suppressed), ()
        return True

    def suppressed(self) -> list[str]:
        """Return the lines with suppressed repeats that have not been reported yet."""
        with self._lock:
            return [_with_count(line[1], n) for line, (_, n) in self._lines.items() if n]


def add_repeat_filter() -> RepeatFilter:
    """Add a `RepeatFilter` to the loggers of the service, of uvicorn and of asyncio, and return it."""
    repeats = RepeatFilter()
    for name in LOGGERS:
        logging.getLogger(name).addFilter(repeats)
    return repeats


def _key_of(record: logging.LogRecord) -> tuple[str, ...]:
    error: Any = record.exc_info[1] if record.exc_info else None
    return record.name, record.getMessage()[:_LINE_LENGTH], type(error).__name__, str(error)[:_LINE_LENGTH]


def _with_count(message: str, n_suppressed: int) -> str:
    return f"{message.rstrip()} ... repeated {n_suppressed} times"
