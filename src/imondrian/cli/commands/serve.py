"""`imondrian serve`: detectors over HTTP."""

import signal
from pathlib import Path

from imondrian.cli.signals import ending_signals
from imondrian.errors import InvalidInputError


def run(data: str, host: str, port: int, token_file: str | None) -> None:
    """Serve until interrupted."""
    try:
        from imondrian.service.server import serve
    except ImportError as error:
        raise InvalidInputError(f"imondrian serve needs {error.name}: pip install 'imondrian[serve]'") from error
    if signal.SIGHUP in ending_signals():
        signal.signal(signal.SIGHUP, _end_in_order)
    serve(Path(data), host, port, None if token_file is None else Path(token_file))


def _end_in_order(_number: int, _frame: object) -> None:
    """End the service as SIGTERM does, since its terminal was closed."""
    signal.raise_signal(signal.SIGTERM)
