"""`imondrian serve`: detectors over HTTP."""

from pathlib import Path

from imondrian.errors import InvalidInputError


def run(data: str, host: str, port: int, token_file: str | None) -> None:
    """Serve until interrupted."""
    try:
        from imondrian.service.running import serve
    except ImportError as error:
        raise InvalidInputError(f"imondrian serve needs {error.name}: pip install 'imondrian[serve]'") from error
    serve(Path(data), host, port, None if token_file is None else Path(token_file))
