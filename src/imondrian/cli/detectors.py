"""The detector of a stream: made or resumed as the options say, and kept in its file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from imondrian import model_files
from imondrian.cli.console import Console
from imondrian.cli.forests import read_threshold
from imondrian.cli.places import Place, checked_place
from imondrian.cli.settings import Detecting, Watching
from imondrian.errors import InvalidInputError
from imondrian.scorer import loaded
from imondrian.stream import StreamDetector

_PLACE = "place"  # among what the model file keeps beside the detector
_PARAMETERS = {"samples": "max_samples", "trees": "n_trees"}  # that have another name than their option


PlaceAfter = Callable[[int], Place | None]


class Keeper:
    """Holds the detector, once there is one, and sees to its file."""

    def __init__(self, watching: Watching, detecting: Detecting, console: Console) -> None:
        self._watching = watching
        self._given = _given(detecting)
        self.place: Place | None = None  # how far a file that is followed had been read before the present batch
        self._place_after: PlaceAfter | None = None  # so many rows of the present batch
        self._n_before = 0  # rows that had come before it
        self._n_skipped = 0  # rows that came before there was a detector
        self.detector = self._resumed(console)
        self._n_saved = self.n_seen

    @property
    def n_seen(self) -> int:
        """How many rows have come, those of earlier runs included."""
        return self._n_skipped if self.detector is None else self.detector.n_seen

    def made(self, n_features: int) -> StreamDetector:
        """Make the detector; the rows that were skipped before count in it."""
        parameters = {_PARAMETERS.get(name, name): value for name, value in self._given.items()}
        detector = StreamDetector(n_features, n_jobs=self._watching.jobs, **parameters)
        detector.skip(self._n_skipped)
        self.detector = detector
        return detector

    def skip(self, n_rows: int) -> None:
        """Count rows that came and cannot be used."""
        if self.detector is None:
            self._n_skipped += n_rows
        else:
            self.detector.skip(n_rows)

    def begin_batch(self, place_after: PlaceAfter) -> None:
        """Note what is needed to find the place in the file at any time while a batch of rows is processed."""
        self._n_before, self._place_after = self.n_seen, place_after

    def end_batch(self) -> None:
        """Remember the place that has been reached; save the detector if it is time."""
        self.place, self._place_after = self._reached(), None
        every = self._watching.save_every
        if every is not None and self.n_seen - self._n_saved >= every:
            self.save()

    def save(self) -> None:
        """Save the detector, if there is one and a file for it."""
        if self._watching.model is not None and self.detector is not None:
            place = self._reached()
            model_files.save(self.detector, self._watching.model, {} if place is None else {_PLACE: place._asdict()})
            self._n_saved = self.n_seen

    def _reached(self) -> Place | None:
        """Return the place after the last row that was processed, be it in the middle of a batch."""
        reached = None if self._place_after is None else self._place_after(self.n_seen - self._n_before)
        return reached or self.place

    def _resumed(self, console: Console) -> StreamDetector | None:
        path = self._watching.model
        if path is None:
            return None
        if not Path(path).exists():
            console.note(f"{path} is not there yet: a new detector begins.")
            return None
        detector = loaded(path)
        beside = model_files.beside(path)
        if not isinstance(detector, StreamDetector):
            raise InvalidInputError(f"{path} holds no detector of a stream; imondrian score works with it.")
        self._check_parameters(detector.parameters, path)
        if _PLACE in beside:
            self.place = checked_place(beside[_PLACE], path)
        detector.forest.n_jobs = self._watching.jobs
        console.note(f"{path}: goes on after {detector.n_seen:,} rows.")
        return detector

    def _check_parameters(self, theirs: dict[str, Any], path: str) -> None:
        for name, value in self._given.items():
            there = theirs[_PARAMETERS.get(name, name)]
            if there != value:
                option = name.replace("_", "-")
                raise InvalidInputError(f"{path} was begun with --{option} {there}, and cannot go on with {value}.")


def _given(detecting: Detecting) -> dict[str, Any]:
    """Give the options that were given, by name, as a detector takes them."""
    given = {name: value for name, value in detecting._asdict().items() if value is not None}
    if "threshold" in given:
        given["threshold"] = read_threshold(given["threshold"])
    if "samples" in given:
        given["samples"] = given["samples"] or None
    return given
