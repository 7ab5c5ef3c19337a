"""Missing numbers on streams: replaced by the medians of the window or by the previous value."""

# ruff: noqa: SLF001 (methods set private attributes of copies)
import base64
from typing import Any

import numpy as np

from imondrian.base.copying import shallow_copy
from imondrian.engine.jit import Array
from imondrian.engine.nodes import MAX_COUNT
from imondrian.forest.inputs import as_count
from imondrian.forest.samplers import ROWS_PER_BLOCK
from imondrian.rows.missing_values import UNKNOWN_MEDIAN, checked_fill, without_gaps
from imondrian.stream.row_layout import RowLayout

_STEPS_PER_WINDOW = 8


def n_mark_entries(window: int) -> int:
    """Return the number of entries for marks, which record the points with gaps (see `StreamGaps`).

    At most `window` entries are in use. The others are for the marks of the next block.
    """
    return window + min(window, ROWS_PER_BLOCK)


class StreamGaps:
    """The missing numbers of a stream: what replaces them, and which values in the window are replacements.

    The medians are computed from the window, without replaced values, at the first gap, and again at the first gap
    after a further eighth of the window has arrived (until the window is full: after the number of points has grown by
    an eighth). Before a feature has a value, its gaps are filled with 0. Every change returns a new object, so that an
    interruption leaves either the old or the new one. The old and the new object share the arrays of marks, to avoid a
    copy for each row: `marked` writes only to entries that the old object does not read.

    Parameters
    ----------
    layout : RowLayout
        The features of a row.
    rule : "raise", "median", "previous", "indicator" or "keep"
        What to do with missing numbers. "raise": this class never gets a row with missing numbers. "keep": they remain
        NaN.
    window : int
        Number of points in the window.

    Attributes
    ----------
    n_missing : int
        Number of missing numbers so far.
    """

    def __init__(self, layout: RowLayout, rule: str, window: int) -> None:
        self.n_missing = 0
        self._layout, self._window = layout, window
        self._repeats, self._keeps = rule == "previous", rule == "keep"
        self._medians = np.full(0 if rule in ("raise", "keep") else layout.n_features, UNKNOWN_MEDIAN)
        self._expires = 0  # from this number of points on, the next gap causes new medians
        # Marks: one entry for each point with gaps, in order: the number of the point, and which features were missing.
        # Mark i is stored in entry i % n_entries. Only the last `window` of the `n_marked` marks are read.
        n_entries = n_mark_entries(window) if rule in ("median", "indicator") else 0
        self._n_marked = 0
        self._point_numbers = np.zeros(n_entries, np.int64)
        self._masks = np.zeros((n_entries, layout.n_features), np.bool_)

    @property
    def n_features(self) -> int:
        """Number of features of a row, without indicators."""
        return self._layout.n_features

    @property
    def medians(self) -> Array:
        """For each feature, the number that replaces a missing one, unless the previous value is repeated."""
        return self._medians

    @property
    def n_bytes(self) -> int:
        """Memory used in bytes."""
        return self._medians.nbytes + self._point_numbers.nbytes + self._masks.nbytes

    def n_rows_with_same_medians(self, rows: Array, n_shown: int) -> int:
        """Return how many of the next rows, from the first on, are filled with the same medians."""
        if not self._point_numbers.size:
            return len(rows)
        with_gaps = np.flatnonzero(np.isnan(rows).any(axis=1))
        if not with_gaps.size:
            return len(rows)
        is_due = with_gaps[0] == 0 and self._expires <= n_shown  # the first row gets new medians
        expires = n_shown + self._step(n_shown) if is_due else self._expires
        late = with_gaps[with_gaps >= expires - n_shown]
        return int(late[0]) if late.size else len(rows)

    def with_medians_for(self, rows: Array, ring: Array, n_shown: int) -> "StreamGaps":
        """Return a copy with new medians if they are due for the next rows, otherwise self.

        The rows are either the next ones, at most `n_rows_with_same_medians` of them, or any number of alternatives for
        the next row, such as rows that are scored without being learned. `ring` holds one point of the window per line;
        a point begins with the numeric features of all its rows.
        """
        if not self._point_numbers.size or self._expires > n_shown or not np.isnan(rows).any():
            return self
        other = shallow_copy(self)
        other._medians, other._expires = self._medians_of(ring, n_shown), n_shown + self._step(n_shown)
        return other

    def filled(self, rows: Array, last: Array | None) -> Array:
        """Return rows with gaps filled and indicators added by the rule; `last` is the row before them, or None."""
        if self._keeps:
            return rows
        if self._repeats:
            return _repeated(rows, self._medians if last is None else last)
        return without_gaps(rows, self._medians, list(self._layout.indicators))

    def filled_separately(self, rows: Array, last: Array | None) -> Array:
        """Like `filled`, but each row is filled as if it came next: "previous" never repeats a value of these rows."""
        if self._repeats:
            return without_gaps(rows, self._medians if last is None else last, [])
        return self.filled(rows, last)

    def counted(self, rows: Array) -> "StreamGaps":
        """Return a copy that has also counted the gaps of the rows."""
        is_gap = np.isnan(rows)
        if not is_gap.any():
            return self
        other = shallow_copy(self)
        other.n_missing = min(self.n_missing + int(is_gap.sum()), MAX_COUNT)
        return other

    def marked(self, rows: Array, n_shown: int) -> "StreamGaps":
        """Return a copy that has also marked the gaps of the rows, which become the points n_shown, n_shown + 1, ...

        There may be at most ROWS_PER_BLOCK rows. This object does not change: if the copy is discarded, this object can
        mark other rows.
        """
        is_gap = np.isnan(rows)
        with_gaps = np.flatnonzero(is_gap.any(axis=1)) if self._point_numbers.size else np.empty(0, np.int64)
        return self._with_marks(n_shown + with_gaps, is_gap[with_gaps])

    def restarted(self) -> "StreamGaps":
        """Return a copy for a window with other points, none of which has a replaced value.

        The medians are computed again at the next gap.
        """
        other = shallow_copy(self)
        other._expires = other._n_marked = 0
        return other

    # -- model files ------------------------------------------------------------------------------------------

    def state(self, n_shown: int) -> dict[str, Any]:
        """Return the state in types that JSON supports; gaps that have left the window are left out.

        A table of bits says which values are replacements. It has one row per point of the window, oldest first.
        """
        slots = self._point_numbers_in_window(n_shown) % self._window
        return {
            "n_missing": self.n_missing,
            "medians": self._medians.tolist(),
            "expires": self._expires,
            "replaced": _packed(self._is_replaced(n_shown)[slots]) if slots.size else "",
        }

    def restored(self, state: dict[str, Any], n_shown: int) -> "StreamGaps":
        """Return the gaps with this state; raise ValueError if it is invalid."""
        other = shallow_copy(self)
        other.n_missing = as_count(state["n_missing"], "n_missing", 0, MAX_COUNT)
        other._medians = checked_fill(state["medians"], self._medians.size)
        other._expires = as_count(state["expires"], "expires", 0, n_shown + self._window)
        numbers = self._point_numbers_in_window(n_shown)
        masks = _unpacked(state["replaced"], (numbers.size, self._layout.n_features))
        other._point_numbers, other._masks, other._n_marked = self._point_numbers.copy(), self._masks.copy(), 0
        return other._with_marks(numbers[masks.any(axis=1)], masks[masks.any(axis=1)])

    # -- internal ---------------------------------------------------------------------------------------------

    def _point_numbers_in_window(self, n_shown: int) -> Array:
        """Return the numbers of the points of the window, oldest first; none if the rule does not mark gaps."""
        return np.arange(max(n_shown - self._window, 0), n_shown if self._point_numbers.size else 0)

    def _step(self, n_shown: int) -> int:
        return max(min(n_shown, self._window) // _STEPS_PER_WINDOW, 1)

    def _with_marks(self, numbers: Array, masks: Array) -> "StreamGaps":
        """Return a copy with further marks: points with these numbers, which have gaps where the masks are True."""
        if not numbers.size:
            return self
        other, entries = shallow_copy(self), np.arange(self._n_marked, self._n_marked + numbers.size)
        other._point_numbers[entries % self._point_numbers.size] = numbers
        other._masks[entries % self._point_numbers.size] = masks
        other._n_marked += numbers.size
        return other

    def _is_replaced(self, n_shown: int) -> Array:
        """Return a boolean table with one line per point of the ring: True for values that replaced missing ones."""
        table = np.zeros((self._window, self._layout.n_features), np.bool_)
        entries = np.arange(max(self._n_marked - self._window, 0), self._n_marked) % self._point_numbers.size
        entries = entries[self._point_numbers[entries] >= n_shown - self._window]
        table[self._point_numbers[entries] % self._window] = self._masks[entries]
        return table

    def _medians_of(self, ring: Array, n_shown: int) -> Array:
        """Return the median of each feature in the window, without replaced values; the old one if no value is left."""
        medians, numeric, is_replaced = self._medians.copy(), self._layout.numeric, self._is_replaced(n_shown)
        first = len(numeric) * (self._layout.size - 1)  # the last row of a point
        for k, j in enumerate(numeric):
            column = ring[:, first + k]
            values = column[~(np.isnan(column) | is_replaced[:, j])]
            if values.size:
                medians[j] = np.median(values)
        return medians


def _repeated(rows: Array, last: Array) -> Array:
    """Fill each gap with the last value above it in its column; `last` is the row above the first one."""
    if not np.isnan(rows).any():
        return rows
    joined = np.vstack([last, rows])
    positions = np.where(np.isnan(joined), 0, np.arange(len(joined))[:, None])
    return np.take_along_axis(joined, np.maximum.accumulate(positions, axis=0), axis=0)[1:]


def _packed(table: Array) -> str:
    """Return booleans, packed eight to a byte, as base64 text; "" if none is True."""
    return base64.b64encode(np.packbits(table).tobytes()).decode() if table.any() else ""


def _unpacked(text: str, shape: tuple[int, int]) -> Array:
    """Return the table that `_packed` packed; raise ValueError if the text does not fit the shape."""
    n_bits = shape[0] * shape[1]
    content = base64.b64decode(text, validate=True)
    n_bytes = -(-n_bits // 8)
    if len(content) not in (0, n_bytes):
        raise ValueError(f"the marks of replaced values have {len(content)} bytes, but should have {n_bytes} or none.")
    bits = np.unpackbits(np.frombuffer(content, np.uint8), count=n_bits) if content else np.zeros(n_bits, np.uint8)
    return bits.reshape(shape).astype(np.bool_)
