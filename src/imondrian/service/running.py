"""Starting the service: where it listens, and who may come in."""

import os
import signal
import socket
import sys
from pathlib import Path

import uvicorn

from imondrian.errors import InvalidInputError
from imondrian.service.app import create_app
from imondrian.service.registry import Registry
from imondrian.service.safety import is_loopback

TOKEN = "IMONDRIAN_TOKEN"  # noqa: S105 (the name of a variable)
_SHORTEST = 16
_MOST_CONNECTIONS = 1_000
_BACKLOG = 512


def serve(folder: Path, host: str, port: int, token_file: Path | None) -> None:
    """Serve the detectors in a folder until the process is told to end."""
    token = read_token(token_file)
    if token is None and not is_loopback(host):
        raise InvalidInputError(
            f"On {host} others could come in: put a token into a file (--token-file) or into the variable {TOKEN}."
        )
    with _listening(host, port) as listener:
        registry = Registry(folder)
        for complaint in (*registry.damages, *registry.complaints()):
            sys.stderr.write(f"imondrian: {complaint}\n")
        address = f"[{host}]" if ":" in host else host
        sys.stderr.write(
            f"imondrian: serving {len(registry.all())} detectors, kept in {folder}, at"
            f" http://{address}:{listener.getsockname()[1]} (Ctrl+C ends it)\n"
        )
        _run(registry, token, listener)


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


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise InvalidInputError(f"{host}:{port} cannot be listened at: {error.strerror}.") from None
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # an answer is written in two pieces
    return listener


def _run(registry: Registry, token: str | None, listener: socket.socket) -> None:
    config = uvicorn.Config(
        create_app(registry, token),
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=10,
    )
    for number in (signal.SIGINT, signal.SIGTERM):  # by which a service is told to end: nothing is interrupted
        signal.signal(number, signal.SIG_IGN)
    uvicorn.Server(config).run([listener])
