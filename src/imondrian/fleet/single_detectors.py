"""Objects made from one detector of a fleet: its window, and a `StreamDetector` that continues from its state."""

from typing import Any

from imondrian.engine.fleet import Shard
from imondrian.engine.histogram import WEIGHT
from imondrian.engine.jit import Array
from imondrian.engine.nodes import FIELDS, Trees
from imondrian.engine.surprise import SINCE
from imondrian.fleet.key_states import KeyState, used_slots
from imondrian.forest.mondrian_forest import MondrianForest
from imondrian.forest.samplers import Window, new_sampler
from imondrian.stream.detector import StreamDetector


def new_window(parameters: dict[str, Any]) -> Window:
    """Return an empty window for a detector with these parameters."""
    window: Window = new_sampler(parameters["max_samples"], parameters["window"])  # type: ignore[assignment]
    return window


def window_of(detector: Shard, parameters: dict[str, Any]) -> Window:
    """Return the window of a shard with one detector; its ring is a view of the shard's ring."""
    window = new_window(parameters)
    window.ring, counts = detector.rings[0], detector.counts[0]
    window.number, window.next_step = int(counts["number"]), int(counts["next_step"])
    window.maintains_typical_sizes = parameters["kind"] == "size" and window.number > 0
    return window


def stream_detector(
    state: KeyState, parameters: dict[str, Any], names: list[Any] | None, *, has_moments: bool
) -> StreamDetector:
    """Return an independent `StreamDetector` that continues exactly as the detector of a key would.

    Parameters
    ----------
    state : KeyState
        The state of the key; it is copied.
    parameters : dict
        The parameters of the detector, including the seed of the key.
    names : list or None
        The names of the features.
    has_moments : bool
        Whether the scale uses the moments of the window.
    """
    fresh = StreamDetector(**parameters)
    notes, counts, score_clock = fresh.notes(), state.detector.counts[0], state.detector.clocks[0]
    threshold = {
        "histogram": state.detector.histograms[0].tolist(),
        "weight": score_clock[WEIGHT],
        "since": score_clock[SINCE],
    }
    incidents = notes["incidents"] if state.incidents is None else state.incidents
    numbers = [int(counts[name]) for name in ("n_seen", "n_skipped", "n_scored")]
    notes |= {"threshold": threshold, "incidents": incidents, "counts": [*numbers, 0], "names": names}
    arrays = _copied_arrays(state.detector, parameters)
    if not has_moments:
        arrays["moments"][:] = 0.0
    forest = MondrianForest.from_state(fresh.forest.snapshot().parameters, _copied_trees(state.detector), arrays)
    return StreamDetector.from_notes(forest, notes)


def _copied_arrays(detector: Shard, parameters: dict[str, Any]) -> dict[str, Array]:
    """Return copies of the moments, and of the arrays "ring" and "clock" of the window."""
    arrays = {"moments": detector.moments[0].copy(), **window_of(detector, parameters).state()}
    return arrays | {"ring": arrays["ring"].copy()}


def _copied_trees(detector: Shard) -> Trees:
    """Return a copy of the trees, without unused slots."""
    n_slots = max(int(detector.trees.heads["n_leaves"].max()), 1)
    return Trees(*(used_slots(name, array, n_slots).copy() for name, array in zip(FIELDS, detector.trees, strict=True)))
