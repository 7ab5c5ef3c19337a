"""Checks of options that run before any work is done."""

import os
import re
from typing import Any

from imondrian.alarms.thresholds import contamination_of, is_auto
from imondrian.base.defaults import SERIES
from imondrian.base.errors import InvalidInputError
from imondrian.base.files import real_path
from imondrian.base.option_types import Threshold
from imondrian.cli.options import (
    SERIES_MISSING,
    ConsoleOptions,
    DetectorOptions,
    FeatureOptions,
    ForestOptions,
    IncidentOptions,
    OutputOptions,
    SourceOptions,
    WatchOptions,
)
from imondrian.forest.inputs import number_of_text
from imondrian.tables.formats import output_format

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kmgt]?)b", re.IGNORECASE | re.ASCII).fullmatch
_BYTES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def check_outputs(source: SourceOptions, outputs: OutputOptions, console: ConsoleOptions) -> None:
    """Raise an InvalidInputError if an output cannot be written, or would overwrite the input."""
    for path in outputs:
        if path is not None and path != "-" and real_path(path) == real_path(source.path):
            raise InvalidInputError(f"{path} is the input: write to another file.")
    if outputs.table == "-" and console.as_json:
        raise InvalidInputError("The table and the JSON cannot both go to standard output: pass a file to -o.")
    if outputs.table is not None and outputs.table != "-":
        output_format(outputs.table)  # raises if the extension is unknown
        check_output_path(outputs.table)
    check_output_path(outputs.report, (".html", ".htm"))
    check_output_path(outputs.model, (".imf",))


def check_output_path(path: str | None, extensions: tuple[str, ...] = ()) -> None:
    """Raise an InvalidInputError if a file cannot be written, or if its name has none of the extensions."""
    if path is None:
        return
    if extensions and not path.lower().endswith(extensions):
        raise InvalidInputError(f"{path}: the name must end in {' or '.join(extensions)}.")
    target = real_path(path)
    if not target.parent.is_dir():
        raise InvalidInputError(f"{path}: the folder {target.parent} does not exist.")
    if target.is_dir():
        raise InvalidInputError(f"{path} is a folder, not a file.")
    is_special = target.exists() and not target.is_file()  # a pipe or a device, which is written in place
    if not os.access(target if is_special else target.parent, os.W_OK):
        raise InvalidInputError(f"{path}: no permission to write.")


def check_forest_options(options: ForestOptions) -> None:
    """Raise an InvalidInputError if a forest cannot have these options."""
    parse_threshold(options.threshold)
    check_jobs(options.jobs)


def parse_threshold(text: str | None) -> Any:
    """Return --threshold as a number or a string, as a stream detector accepts it; None if the option is not set."""
    if text is None:
        return None
    number = number_of_text(text)
    value = text if number is None else number
    is_auto(value, "--threshold")  # raises if it is invalid
    return value


def contamination_from(text: str | None, default: Threshold) -> str:
    """Return the contamination (a string) that is equivalent to --threshold, or to the default if it is not set."""
    return contamination_of(default if text is None else parse_threshold(text), "--threshold")


def check_jobs(jobs: int) -> int:
    """Return the number of threads; raise an InvalidInputError if it is 0."""
    if jobs == 0:
        raise InvalidInputError("--jobs must not be 0; -1 means all processors.")
    return jobs


def check_series_options(detector: DetectorOptions, features: FeatureOptions) -> None:
    """Raise an InvalidInputError if options cannot be combined with --preset series."""
    if detector.preset != SERIES:
        return
    if detector.shingle not in (None, 1):
        raise InvalidInputError(
            f"--preset series looks at single rows, so --shingle {detector.shingle} is not possible: leave it out."
        )
    if features.categorical:
        raise InvalidInputError(
            f"--preset series reads numbers only, so --categorical {','.join(features.categorical)} is not possible."
        )
    if detector.missing not in (None, *SERIES_MISSING):
        raise InvalidInputError(
            f"With --preset series, --missing must be {' or '.join(SERIES_MISSING)}, but is {detector.missing}."
        )


def check_key_options(
    detector: DetectorOptions, features: FeatureOptions, incidents: IncidentOptions, watch: WatchOptions
) -> None:
    """Raise an InvalidInputError if an option cannot be combined with --by, or needs it."""
    if not features.by:
        if watch.max_memory is not None:
            raise InvalidInputError("--max-memory needs --by: a single detector has a fixed size.")
        return
    not_supported = {
        f"--preset {detector.preset}": detector.preset == SERIES,
        f"--shingle {detector.shingle}": detector.shingle not in (None, 1),
        "--no-learn-anomalies": detector.learn_anomalies is False,
    }
    for option in (option for option, is_given in not_supported.items() if is_given):
        raise InvalidInputError(f"With --by, {option} is not possible.")
    if detector.missing not in (None, "drop"):
        raise InvalidInputError(
            f"With --by, --missing {detector.missing} is not possible: a row with a missing number is unusable."
        )
    if features.categorical:
        raise InvalidInputError(
            f"With --by, all features must be numbers, so --categorical {','.join(features.categorical)} is not"
            " possible: leave the columns out with --ignore."
        )
    if watch.explain:
        raise InvalidInputError("With --by, --explain is not possible: only incidents are explained (--incidents).")
    if incidents.silence is not None:
        raise InvalidInputError("With --by, --silence is not possible: the silence of a single key is not noticed.")


def parse_bytes(text: str, name: str) -> int:
    """Return the number of bytes of a size such as 500MB; raise InvalidInputError if the text is not a size.

    Examples
    --------
    >>> parse_bytes("1.5GB", "--max-memory")
    1500000000
    """
    found = _SIZE(text.strip())
    if found is None:
        raise InvalidInputError(f"{name} must be a number and KB, MB, GB or TB, such as 500MB, but is {text!r:.200}.")
    return int(float(found[1]) * _BYTES[found[2].lower()])
