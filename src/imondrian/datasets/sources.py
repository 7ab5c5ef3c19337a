"""Sources to read content from: a local file, or bytes that were downloaded."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO

Source = Path | IO[bytes]


def open_source(source: Source) -> AbstractContextManager[IO[bytes]]:
    """Open a source; a local file is closed on exit, even if it is damaged and cannot be read."""
    return source.open("rb") if isinstance(source, Path) else nullcontext(source)
