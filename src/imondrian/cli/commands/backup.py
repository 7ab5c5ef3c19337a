"""`imondrian backup`: copy everything that a running service stores."""

from pathlib import Path

from imondrian.base.errors import InvalidInputError
from imondrian.cli.console import Console, print_facts
from imondrian.cli.options import ConsoleOptions


def backup(console_options: ConsoleOptions, file: str, url: str, token_file: str | None) -> None:
    """Write the copy to a file, and print its size and the number of detectors in it."""
    try:
        from imondrian.service.client import Client
        from imondrian.service.http.server import read_token
    except ImportError as error:
        raise InvalidInputError(f'imondrian backup needs {error.name}: pip install "imondrian[serve]".') from error
    token = read_token(None if token_file is None else Path(token_file))
    with Client(url, token) as client:
        found = client.backup(file)
    result = {"file": file, "n_bytes": found.n_bytes, "n_detectors": found.n_detectors}
    facts = {"backup": file, "size": f"{found.n_bytes:,} bytes", "detectors": f"{found.n_detectors:,}"}
    Console(console_options).print_result(result, lambda rich: print_facts(facts, rich))
