"""`imondrian serve`: detectors over HTTP."""

import signal
from pathlib import Path

from imondrian.base.errors import InvalidInputError
from imondrian.cli.option_checks import parse_bytes
from imondrian.cli.signals import ending_signals, raise_if_interrupted


def serve(
    data: str,
    host: str,
    port: int,
    token_file: str | None,
    notify: tuple[str, ...] = (),
    notify_secret_file: str | None = None,
    max_memory: str | None = None,
) -> None:
    """Run the service until it is interrupted."""
    try:
        from imondrian.service.http.server import serve as run
    except ImportError as error:
        raise InvalidInputError(f'imondrian serve needs {error.name}: pip install "imondrian[serve]".') from error
    raise_if_interrupted()
    max_bytes = None if max_memory is None else parse_bytes(max_memory, "--max-memory")
    if signal.SIGHUP in ending_signals():
        signal.signal(signal.SIGHUP, _stop_like_sigterm)
    run(Path(data), host, port, _path(token_file), notify, _path(notify_secret_file), max_bytes)


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)


def _stop_like_sigterm(_number: int, _frame: object) -> None:
    """Shut the service down cleanly when its terminal is closed."""
    signal.raise_signal(signal.SIGTERM)
