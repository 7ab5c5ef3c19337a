"""Starting the service: where it listens, and who may come in."""

import gc
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
from imondrian.service.descriptors import within_descriptors
from imondrian.service.logs import count_repeats
from imondrian.service.privacy import is_open_to_others, mode_of
from imondrian.service.registry import Registry
from imondrian.service.safety import is_loopback
from imondrian.service.settings import Bounds

TOKEN = "IMONDRIAN_TOKEN"  # noqa: S105 (the name of a variable)
_SHORTEST = 16


def serve(folder: Path, host: str, port: int, token_file: Path | None) -> None:
    """Serve the detectors in a folder until the process is told to end."""
    token = read_token(token_file)
    if token is None and not is_loopback(host):
        raise InvalidInputError(
            f"On {host} others could come in: put a token into a file (--token-file) or into the variable {TOKEN}."
        )
    bounds = within_descriptors(Bounds())
    with _listening(host, port, bounds.backlog) as listener:
        registry = Registry(folder)
        for warning in [*_warnings(token_file, bounds), *registry.damages, *registry.complaints()]:
            _tell(warning)
        server = uvicorn.Server(uvicorn_config(create_app(registry, token), bounds, log_level="warning"))
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


def _warnings(token_file: Path | None, bounds: Bounds) -> Iterator[str]:
    """Tell what does not keep the service from starting, but should be known."""
    if token_file is not None and is_open_to_others(token_file):
        yield f"others can read the token file {token_file} (its mode is {mode_of(token_file)}): use chmod 600."
    if bounds.connections < Bounds().connections:
        yield (
            f"at most {bounds.connections} connections instead of {Bounds().connections},"
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
    repeats = count_repeats()
    gc.collect()
    gc.freeze()  # modules and compiled kernels stay: looking through them for garbage would stop all for 100 ms
    server.run([listener])
    for line in repeats.kept_back():
        _tell(line)
    if threading.active_count() > 1:  # threads that work for clients who are gone: all that must be kept is
        sys.stderr.flush()
        os._exit(0)


def uvicorn_config(app: ASGIApp, bounds: Bounds, **settings: Any) -> uvicorn.Config:
    """Return how uvicorn serves an application, with bounded connections."""
    return uvicorn.Config(
        app,
        http=cast("Any", Connections(bounds).protocol),
        ws="none",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=bounds.backlog,
        timeout_graceful_shutdown=bounds.grace_seconds,
        **settings,
    )
