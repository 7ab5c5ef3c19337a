"""The place up to which a file has been read: kept with the model, found again in the file or where it was moved."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from imondrian.errors import InvalidInputError
from imondrian.tables.lines import KNOWN_BYTES


class Place(NamedTuple):
    """How far a file has been read."""

    position: int
    digest: str  # of the bytes just before it: shows whether it is still the same file
    header: str | None = None  # the line with the names of the columns, which a later file may lack


def place_after(position: int, before: bytes, header: str | None) -> Place:
    """Return the place that has these bytes before it."""
    return Place(position, hashlib.sha256(before).hexdigest(), header)


def checked_place(place: Any, model: str) -> Place:
    """Check what a model file has as a place; older ones have no header in it."""
    required, known = {"position", "digest"}, set(Place._fields)
    is_place = (
        isinstance(place, dict)
        and required <= set(place) <= known
        and isinstance(place["position"], int)
        and place["position"] >= 0
        and isinstance(place["digest"], str)
        and isinstance(place.get("header"), str | None)
    )
    if not is_place:
        raise InvalidInputError(f"{model}: the place in the file that was followed is {place!r}.")
    return Place(**place)


def find(place: Place, path: str) -> Path | None:
    """Return the file that has the place: that of this name, or else one beside it that had the name before.

    Tools that rotate files add to the name (log.csv.1, log.csv-20240131, log-1.csv). Of several copies the latest is
    taken.
    """
    file = Path(path)
    if _has(file, place):
        return file
    beside = [other for other in file.parent.glob("*") if other.name.startswith(file.stem) and other != file]
    return max((other for other in beside if _has(other, place)), key=_time_of_change, default=None)


def bytes_before(file: Path, position: int) -> bytes:
    """Return the last bytes before a position, by which it can be recognised; none if the file is shorter."""
    with file.open("rb") as opened:
        if opened.seek(0, 2) < position:
            return b""
        opened.seek(max(position - KNOWN_BYTES, 0))
        return opened.read(min(position, KNOWN_BYTES))


def _has(file: Path, place: Place) -> bool:
    try:
        return file.is_file() and hashlib.sha256(bytes_before(file, place.position)).hexdigest() == place.digest
    except OSError:  # it cannot be read, or was removed just now
        return False


def _time_of_change(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0
