"""What content is read from: a file on this machine, or bytes that have come from elsewhere."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO

Source = Path | IO[bytes]


def opened(source: Source) -> AbstractContextManager[IO[bytes]]:
    """Open a file for as long as it is read; NumPy and SciPy do not close every damaged one that they open."""
    return source.open("rb") if isinstance(source, Path) else nullcontext(source)
