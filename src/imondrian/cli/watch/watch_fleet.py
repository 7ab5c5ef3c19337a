"""The fleet of `imondrian watch --by`: created or resumed according to the options, and saved to its model file."""

from pathlib import Path
from typing import Any, NamedTuple

from imondrian.base.errors import ImondrianError, InvalidInputError, NothingSavedError
from imondrian.cli.console import Console
from imondrian.cli.detector_settings import AlarmSettings, check_parameters, detector_parameters, explicit_options
from imondrian.cli.model_loading import load_model_file
from imondrian.cli.option_checks import parse_bytes
from imondrian.cli.options import DetectorOptions, WatchOptions
from imondrian.cli.watch.stream_features import StreamFeatures
from imondrian.cli.watch.stream_input import FilePosition, PositionAfter, check_position
from imondrian.fleet.fleet import Fleet
from imondrian.fleet.key_store import is_fleet_file

_POSITION, _N_SEEN, _KEYS = "position", "n_seen", "keys"  # among the extra values of the model file
_NOT_IN_FLEET = ("shingle", "missing", "learn_anomalies")  # options of `watch` that a fleet does not have
_MAX_ROWS = 2**53


class _Batch(NamedTuple):
    """Lines of the input that are being processed; some of them are rows of the fleet."""

    n_lines: int = 0
    keyed: list[int] = []  # noqa: RUF012 (never changed)  # indices of the lines that are rows of the fleet
    n_rows_before: int = 0  # number of rows that the fleet had processed before the batch

    def n_done(self, n_rows: int) -> int:
        """Return how many lines of the batch are processed; `n_rows` is what the fleet has processed in total."""
        n_keyed = n_rows - self.n_rows_before
        return self.n_lines if n_keyed == len(self.keyed) else self.keyed[n_keyed]


class WatchFleet:
    """The fleet of `watch --by` with its model file and the position in a followed file.

    A new fleet is created when the features are known; until then, `fleet` is None.

    Parameters
    ----------
    options : WatchOptions
        Options of `watch`, including the model file, if any.
    detector_options : DetectorOptions
        Parameters of a new fleet; a resumed fleet must agree with those that are set.
    keys : tuple of str
        The option --by; a resumed fleet must have been created with the same columns.
    settings : AlarmSettings
        Threshold and rules for incidents; those that are set replace the ones of a resumed fleet.
    console : Console
        Where to print notes.
    """

    allows_gaps = False

    def __init__(
        self,
        options: WatchOptions,
        detector_options: DetectorOptions,
        keys: tuple[str, ...],
        settings: AlarmSettings,
        console: Console,
    ) -> None:
        self._options = options
        explicit = explicit_options(detector_options)
        self._explicit_options = {name: value for name, value in explicit.items() if name not in _NOT_IN_FLEET}
        self._keys = [name for text in keys for name in text.split(",") if name]
        text = options.max_memory
        self._max_bytes = None if text is None else parse_bytes(text, "--max-memory")
        self.settings = settings
        self.position: FilePosition | None = None  # in a followed file, before the current batch
        self._position_after: PositionAfter | None = None  # the position after n lines of the current batch
        self._batch = _Batch()
        self._n_before = 0  # lines before the current batch
        self.fleet = self._resume(console)
        self._n_saved = self.n_seen

    @property
    def extra(self) -> dict[str, Any]:
        """What the model file stores in addition to the fleet."""
        return {} if self.fleet is None else self.fleet.extra

    @property
    def features(self) -> StreamFeatures | None:
        """The features of the fleet; None if there is no fleet, or if they have no names yet."""
        names = None if self.fleet is None else self.fleet.feature_names
        return None if names is None else StreamFeatures([str(name) for name in names])

    @property
    def n_features(self) -> int | None:
        """Number of features of the fleet; None if there is no fleet."""
        return None if self.fleet is None else int(self.fleet.parameters["n_features"])

    @property
    def path(self) -> str | None:
        """The model file."""
        return self._options.model

    @property
    def n_seen(self) -> int:
        """Number of lines so far, including those of earlier runs and those without a key."""
        return self._n_before + self._n_done

    @property
    def is_save_due(self) -> bool:
        """Whether --save-every rows have passed since the fleet was saved."""
        every = self._options.save_every
        return every is not None and self.n_seen - self._n_saved >= every

    def create(self, features: StreamFeatures) -> Fleet:
        """Create the fleet."""
        parameters = detector_parameters(self._explicit_options) | self.settings.parameters()
        try:
            self.fleet = Fleet(
                len(features.names),
                on_error="skip",
                max_bytes=self._max_bytes,
                store=self._options.model,
                n_jobs=self._options.jobs,
                **parameters,
            )
        except ImondrianError as error:
            raise self._without_parameter_name(error) from None
        return self.fleet

    def start_batch(self, position_after: PositionAfter) -> None:
        """Start a batch of lines; `position_after` returns the position in the file after a number of lines."""
        self._position_after = position_after

    def start_lines(self, n_lines: int, keyed: list[int]) -> None:
        """Start to process the first n_lines lines; `keyed` are the indices of those that are rows of the fleet."""
        self._batch = _Batch(n_lines, keyed, 0 if self.fleet is None else self.fleet.n_rows)

    def end_batch(self) -> None:
        """Count the lines of the batch, and remember the position after it."""
        self.position = self._current_position()
        self._n_before, self._batch, self._position_after = self.n_seen, _Batch(), None
        self._batch = self._batch._replace(n_rows_before=0 if self.fleet is None else self.fleet.n_rows)

    def save(self, extra: dict[str, Any]) -> None:
        """Save the fleet with extra values, if it exists and has a model file."""
        if self._options.model is not None and self.fleet is not None:
            position = self._current_position()
            place = None if position is None else position._asdict()
            self.fleet.extra = extra | {_POSITION: place, _N_SEEN: self.n_seen, _KEYS: self._keys}
            self.fleet.save()
            self._n_saved = self.n_seen

    def close(self) -> None:
        """Close the model file."""
        if self.fleet is not None:
            self.fleet.close()

    @property
    def _n_done(self) -> int:
        return self._batch.n_done(0 if self.fleet is None else self.fleet.n_rows)

    def _current_position(self) -> FilePosition | None:
        """Return the position after the last processed line, which may be in the middle of a batch."""
        after = None if self._position_after is None else self._position_after(self._n_done)
        return after or self.position

    def _resume(self, console: Console) -> Fleet | None:
        path = self._options.model
        if path is None:
            return None
        if not Path(path).exists():
            console.note(f"{path} does not exist yet: a new fleet is created.")
            return None
        if not is_fleet_file(path):
            load_model_file(path)  # raises an error if it is not a model
            raise InvalidInputError(f"{path} was saved without --by: leave out --by, or choose another model file.")
        try:
            fleet = Fleet.load(path, max_bytes=self._max_bytes, n_jobs=self._options.jobs)
        except NothingSavedError:
            console.note(f"{path}: the run that created the file ended before it saved, so a new fleet is created.")
            return None
        except ImondrianError as error:
            raise self._without_parameter_name(error) from None
        try:
            self._check(fleet, path)
        except BaseException:
            fleet.close()
            raise
        self._batch = self._batch._replace(n_rows_before=fleet.n_rows)
        console.note(f"{path}: resumed after {self._n_before:,} rows, with {len(fleet):,} keys.")
        for change in self.settings.apply(fleet):
            console.note(f"{path}: {change}.")
        return fleet

    def _check(self, fleet: Fleet, path: str) -> None:
        """Raise an InvalidInputError if a resumed fleet does not match the options, or its extra values are invalid."""
        extra = fleet.extra
        check_parameters(self._explicit_options, fleet.parameters, path)
        keys, n_seen, position = extra.get(_KEYS), extra.get(_N_SEEN, fleet.n_rows), extra.get(_POSITION)
        if keys is not None and keys != self._keys:
            created = ",".join(map(str, keys)) if isinstance(keys, list) else keys
            raise InvalidInputError(f"{path} was created with --by {created}, not --by {','.join(self._keys)}.")
        if type(n_seen) is not int or not fleet.n_rows <= n_seen <= _MAX_ROWS:
            raise InvalidInputError(f"{path}: the stored number of rows is invalid: {n_seen!r:.200}.")
        self._n_before = n_seen
        if position is not None:
            self.position = check_position(position, path)
        if fleet.feature_names is not None:
            self.settings.check_features([str(name) for name in fleet.feature_names], ())

    def _without_parameter_name(self, error: ImondrianError) -> ImondrianError:
        """Return the error, or an error about --max-memory if it is about the parameter `max_bytes`."""
        text = str(error).partition("max_bytes must be between ")[2]
        if not text:
            return error
        return InvalidInputError(
            f"--max-memory {self._options.max_memory} is too small: one key needs {int(text.split()[0]):,} bytes."
        )
