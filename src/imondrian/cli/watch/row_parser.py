"""The rows of a stream: a record and the values of its features; the first record determines the features."""

from typing import Any, NamedTuple, Protocol

from imondrian.base.column_names import BORROWED, RESULTS, SCORE
from imondrian.base.errors import InvalidInputError
from imondrian.cli.console import Console
from imondrian.cli.detector_settings import AlarmSettings
from imondrian.cli.options import FeatureOptions
from imondrian.cli.table_rows import split_names
from imondrian.cli.watch.incident_events import FIELDS
from imondrian.cli.watch.stream_features import NO_VALUE, StreamChoice, StreamFeatures
from imondrian.cli.watch.time_column import TimeValue, WatchTimes
from imondrian.tables.feature_columns import check_names
from imondrian.tables.line_records import Parser, Record

_EMPTY_RECORD = Record({})


class Row(NamedTuple):
    """A line of the stream: its record, and the values of the features or the error."""

    record: Record
    values: list[Any]  # empty if there is an error
    error: str | None


class WatchedModel(Protocol):
    """What the rows of a stream must match: a detector or a fleet, once it exists, and the options."""

    settings: AlarmSettings

    @property
    def features(self) -> StreamFeatures | None:
        """The features; None if they are not known yet."""

    @property
    def n_features(self) -> int | None:
        """Number of features; None if it is not known yet."""

    @property
    def allows_gaps(self) -> bool:
        """Whether rows may have missing values."""

    @property
    def path(self) -> str | None:
        """The model file."""


class WatchRows:
    """Parses lines into rows.

    Attributes
    ----------
    keys : list of str
        The key columns; empty before the first record.
    features : StreamFeatures
        The features of the model, if it has names for them; otherwise those of the first record, and none before it.
    numbers : frozenset of str
        Names of the features that are numbers; empty before the first record.
    """

    def __init__(self, model: WatchedModel, options: FeatureOptions, times: WatchTimes, console: Console) -> None:
        self._model = model
        self._times = times
        self._feature_options = options
        self._console = console
        self._features = model.features
        self._has_record = False  # True: the first record has been read
        self.keys: list[str] = []
        self.numbers: frozenset[str] = frozenset()

    @property
    def features(self) -> StreamFeatures:
        """The features of the model, if it has names for them; otherwise those of the first record, none before it."""
        return self._features or StreamFeatures([])

    def time_of(self, row: Row) -> TimeValue:
        """Return the value of the time column; None if there is no such column."""
        return self._times.of(row.record.values)

    def parse(self, line: bytes, parser: Parser) -> Row:
        """Parse a line; an error in it is returned as part of the row."""
        try:
            record = parser(line)
        except InvalidInputError as error:
            return Row(_EMPTY_RECORD, [], str(error))
        features = self._known_features(record)
        if features is None:
            return Row(record, [], NO_VALUE)
        try:
            return Row(record, features.values(record.values), None)
        except InvalidInputError as error:
            return Row(record, [], str(error))

    def _known_features(self, record: Record) -> StreamFeatures | None:
        """Return the features: those of the model, which the first record must match, or those of the first record.

        Return None if they are not known yet and all values of the record are missing.
        """
        if self._has_record and self._features is not None:
            return self._features
        if self._features is None and not record.values:
            return None
        columns, options = list(record.values), self._feature_options
        features, ignore, categorical, self.keys = (
            split_names(names, columns) for names in (options.features, options.ignore, options.categorical, options.by)
        )
        self._times.choose(record.values, {*features, *ignore, *categorical})
        column, is_csv = self._times.column, record.text is None
        time = [column] if column is not None and (options.time is not None or is_csv) else []
        keys = self.keys if is_csv else []  # a later JSON record may have a key column that this one lacks
        check_names((*features, *ignore, *categorical, *time, *keys), columns)
        self._check_keys(features)
        self._check_result_names(columns)
        if self._features is not None:
            self._check_features(self._features, features, categorical, record)
        else:
            numbers_required_by = "--preset series" if self._times.uses_times else "--by" if self.keys else ""
            choice = StreamChoice(features, ignore, categorical, self._times.column, self.keys, numbers_required_by)
            if choice.has_no_value(record.values):
                return None
            self._features = self._choose_features(record, choice)
        self._times.announce()
        numbers = (name for j, name in enumerate(self._features.names) if j not in self._features.categorical)
        self.numbers = frozenset(numbers)
        self._model.settings.check_features(self._features.names, self._features.categorical)
        self._has_record = True
        return self._features

    def _check_keys(self, features: list[str]) -> None:
        """Raise an InvalidInputError if a key column is a feature, or has the name of a field of incidents."""
        known = features or ([] if self._features is None else self._features.names)
        both = [name for name in self.keys if name in known]
        if both:
            raise InvalidInputError(f"The column {both[0]!r} cannot be both a key and a feature.")
        taken = [name for name in self.keys if name in FIELDS]
        if taken:
            raise InvalidInputError(f"The key column {taken[0]!r} has the name of a field of incidents: rename it.")

    def _check_result_names(self, columns: list[str]) -> None:
        """Raise an InvalidInputError if a column has the name of a result, unless it is a result of an earlier run."""
        results = (*RESULTS, BORROWED) if self.keys else RESULTS
        taken = [name for name in results if name in columns]
        if taken and SCORE not in columns:
            raise InvalidInputError(
                f"The stream has its own column {taken[0]!r}, which is the name of a result: rename it."
            )

    def _check_features(
        self, known: StreamFeatures, features: list[str], categorical: list[str], record: Record
    ) -> None:
        """Raise an InvalidInputError if the stream has other features than the detector.

        A JSON record may lack some features, since the next record may have them.
        """
        model = self._model.path
        lacking = [name for name in known.names if name not in record.values]
        is_csv = record.text is None
        if lacking and (is_csv or len(lacking) == len(known.names)):
            raise InvalidInputError(f"{model} was created with other features: there is no column {lacking[0]!r}.")
        if features and features != known.names:
            raise InvalidInputError(f"{model} was created with the features {', '.join(known.names)}.")
        for name in categorical:
            if name in known.names and known.names.index(name) not in known.categorical:
                raise InvalidInputError(f"{model} was created with numbers in the column {name!r}.")

    def _choose_features(self, record: Record, choice: StreamChoice) -> StreamFeatures:
        """Choose the features: the given ones, or all numbers and categories of the first record."""
        expected = self._model.n_features
        chosen, left_out = choice.choose(record.values, allows_gaps=self._model.allows_gaps)
        if expected is not None and expected != len(chosen.names):
            names = ", ".join(chosen.names)
            raise InvalidInputError(
                f"The detector has {expected} unnamed features, but the stream has {len(chosen.names)}: {names}."
            )
        shown = [f"{name} (category)" if j in chosen.categorical else name for j, name in enumerate(chosen.names)]
        reasons = ", ".join(f"{name} ({reason})" for name, reason in left_out.items())
        self._console.note(f"features: {', '.join(shown)}" + (f"; left out: {reasons}" if reasons else ""))
        return chosen
