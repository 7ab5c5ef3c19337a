"""Places to write to, looked at before the work begins."""

import os

from imondrian.cli.settings import Outputs, Source, Telling
from imondrian.errors import InvalidInputError
from imondrian.files import real_path
from imondrian.tables.formats import format_to_write


def check_outputs(source: Source, outputs: Outputs, telling: Telling) -> None:
    """Make sure that everything can be written where it is to be, and nothing in the place of what is read."""
    for path in outputs:
        if path is not None and path != "-" and real_path(path) == real_path(source.path):
            raise InvalidInputError(f"{path} is what is read: write to another file.")
    if outputs.table == "-" and telling.as_json:
        raise InvalidInputError("The table and the JSON cannot both go to standard output: give -o a file.")
    if outputs.table is not None and outputs.table != "-":
        format_to_write(outputs.table)
        check_place(outputs.table)
    check_place(outputs.report, (".html", ".htm"))
    check_place(outputs.model, (".imf",))


def check_place(path: str | None, endings: tuple[str, ...] = ()) -> None:
    """Make sure that a file can be written there, and that its name ends as it should."""
    if path is None:
        return
    if endings and not path.lower().endswith(endings):
        raise InvalidInputError(f"{path}: the name must end in {' or '.join(endings)}.")
    place = real_path(path)
    if not place.parent.is_dir():
        raise InvalidInputError(f"{path}: there is no folder {place.parent}.")
    if place.is_dir():
        raise InvalidInputError(f"{path} is a folder, not a file.")
    is_special = place.exists() and not place.is_file()  # a pipe or a device, which is written as it is
    if not os.access(place if is_special else place.parent, os.W_OK):
        raise InvalidInputError(f"{path}: there is no permission to write there.")


def written(outputs: Outputs) -> dict[str, str]:
    """Say what is written where."""
    return {name: path for name, path in outputs._asdict().items() if path is not None and path != "-"}
