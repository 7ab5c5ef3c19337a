"""The detector of `imondrian watch`: created or resumed according to the options, and saved to its model file."""

from pathlib import Path
from typing import Any

from imondrian import model_files
from imondrian.base.defaults import PRESET
from imondrian.base.errors import InvalidInputError
from imondrian.cli.console import Console
from imondrian.cli.detector_settings import AlarmSettings, check_parameters, detector_parameters, explicit_options
from imondrian.cli.model_loading import load_model_file
from imondrian.cli.options import DetectorOptions, WatchOptions
from imondrian.cli.watch.stream_features import StreamFeatures, features_of_detector
from imondrian.cli.watch.stream_input import FilePosition, PositionAfter, check_position
from imondrian.stream.detector import Results, StreamDetector

_POSITION = "place"  # key of the position among the extra values of the model file


class WatchDetector:
    """The detector, once it exists, with its model file and the position in a followed file.

    Parameters
    ----------
    options : WatchOptions
        Options of `watch`, including the model file, if any.
    detector_options : DetectorOptions
        Parameters of a new detector; a resumed detector must agree with those that are set.
    settings : AlarmSettings
        Threshold and rules for incidents; those that are set replace the ones of a resumed detector.
    console : Console
        Where to print notes.

    Attributes
    ----------
    extra : dict
        What the model file stores in addition to the detector.
    """

    def __init__(
        self,
        options: WatchOptions,
        detector_options: DetectorOptions,
        settings: AlarmSettings,
        console: Console,
    ) -> None:
        self._options = options
        self.settings = settings
        self.extra: dict[str, Any] = {}
        self._explicit_options = explicit_options(detector_options)
        self.position: FilePosition | None = None  # in a followed file, before the current batch
        self._position_after: PositionAfter | None = None  # the position after n rows of the current batch
        self._n_before = 0  # rows before the current batch
        self._n_skipped = 0  # rows before the detector was created
        self.detector = self._resume(console)
        self._n_saved = self.n_seen

    @property
    def n_seen(self) -> int:
        """Number of rows so far, including those of earlier runs."""
        return self._n_skipped if self.detector is None else self.detector.n_seen

    @property
    def features(self) -> StreamFeatures | None:
        """The features of the detector; None if there is no detector, or if they have no names yet."""
        return None if self.detector is None else features_of_detector(self.detector)

    @property
    def n_features(self) -> int | None:
        """Number of features of the detector; None if there is no detector."""
        return None if self.detector is None else int(self.detector.parameters["n_features"])

    @property
    def preset(self) -> str:
        """The preset."""
        explicit = self._explicit_options.get("preset", PRESET)
        return str(explicit if self.detector is None else self.detector.preset)

    @property
    def allows_gaps(self) -> bool:
        """Whether rows may have missing values."""
        if self.detector is not None:
            return bool(self.detector.parameters["missing"] != "raise")
        return self._explicit_options.get("missing") != "raise"

    def create(self, features: StreamFeatures) -> StreamDetector:
        """Create the detector; rows that were skipped before are counted in it."""
        categorical = sorted(features.categorical)
        detector = StreamDetector(
            len(features.names),
            n_jobs=self._options.jobs,
            categorical=categorical,
            **detector_parameters(self._explicit_options),
            **self.settings.parameters(),
        )
        detector.skip(self._n_skipped)
        self.detector = detector
        return detector

    def skip(self, n_rows: int) -> Results | None:
        """Count rows that cannot be used; return their results, or None if there is no detector yet."""
        if self.detector is not None:
            return self.detector.skip(n_rows)
        self._n_skipped += n_rows
        return None

    def start_batch(self, position_after: PositionAfter) -> None:
        """Start a batch of rows; `position_after` returns the position in the file after any number of them."""
        self._n_before, self._position_after = self.n_seen, position_after

    def end_batch(self) -> None:
        """Store the position after the batch."""
        self.position, self._position_after = self._current_position(), None

    @property
    def is_save_due(self) -> bool:
        """Whether --save-every rows have passed since the detector was saved."""
        every = self._options.save_every
        return every is not None and self.n_seen - self._n_saved >= every

    @property
    def path(self) -> str | None:
        """The model file."""
        return self._options.model

    def save(self, extra: dict[str, Any]) -> None:
        """Save the detector, if it exists and has a model file, with further values."""
        if self._options.model is not None and self.detector is not None:
            position = self._current_position()
            place = {} if position is None else {_POSITION: position._asdict()}
            model_files.save(self.detector, self._options.model, extra | place)
            self._n_saved = self.n_seen

    def _current_position(self) -> FilePosition | None:
        """Return the position after the last processed row, also in the middle of a batch."""
        after = None if self._position_after is None else self._position_after(self.n_seen - self._n_before)
        return after or self.position

    def _resume(self, console: Console) -> StreamDetector | None:
        path = self._options.model
        if path is None:
            return None
        if not Path(path).exists():
            console.note(f"{path} does not exist yet: a new detector is created.")
            return None
        detector = load_model_file(path)
        self.extra = model_files.load_extra(path)
        if not isinstance(detector, StreamDetector):
            raise InvalidInputError(f"{path} does not contain a stream detector; use it with imondrian score.")
        check_parameters(self._explicit_options, detector.parameters, path)
        if _POSITION in self.extra:
            self.position = check_position(self.extra[_POSITION], path)
        detector.forest.n_jobs = self._options.jobs
        console.note(f"{path}: resumed after {detector.n_seen:,} rows.")
        features = features_of_detector(detector)
        if features is not None:
            self.settings.check_features(features.names, features.categorical)
        for change in self.settings.apply(detector):
            console.note(f"{path}: {change}.")
        return detector
