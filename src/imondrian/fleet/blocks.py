"""Blocks of rows of many keys: how many rows a block has, and its rows grouped by key and by shard."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from imondrian.alarms.incidents import LabelledRows
from imondrian.engine.fleet import GROUP, Block, Labels
from imondrian.engine.jit import Array
from imondrian.fleet.keys import Key
from imondrian.fleet.shards import Shards

if TYPE_CHECKING:
    from collections import OrderedDict

MAX_ROWS = 2**17  # largest number of rows in a block


class Limits(NamedTuple):
    """Limits on the rows of a block."""

    max_keys: int  # largest number of different keys
    max_rows_per_key: int
    drops_keys: bool  # True if keys that leave memory are lost


def block_end(keys: list[Key], first: int, entries: "OrderedDict[Key, int]", limits: Limits) -> int:
    """Return the end of the block that begins with row `first`.

    `entries` contains the keys in memory, the least recently used one first. If keys are dropped, a block ends before
    the first row of a key that would already have been dropped if rows were processed one by one. So which keys are
    dropped does not depend on the division into blocks.
    """
    counts: dict[Key, int] = {}
    n_free, idle, dropped = limits.max_keys - len(entries), iter(entries), set[Key]()
    end = min(first + MAX_ROWS, len(keys))
    for i in range(first, end):
        key = keys[i]
        count = counts.get(key, 0)
        if count == limits.max_rows_per_key or (count == 0 and len(counts) == limits.max_keys) or key in dropped:
            return i
        if count == 0 and limits.drops_keys and key not in entries:
            n_free -= 1
            if n_free < 0:
                dropped.add(next(other for other in idle if other not in counts))
        counts[key] = count + 1
    return end


class KeyedBlock(NamedTuple):
    """A block of rows with everything that is needed to process it, and to process it again after an interruption.

    An entry is the number of a detector (`shards.py`). The keys of the block are numbered in ascending order of their
    entries: key i has the entry `used[i]`.
    """

    keys: list[Key]  # of each row
    entries: Array  # of each row's key
    used: Array  # the distinct entries, ascending
    starts: Array  # the rows of key i are order[starts[i] : starts[i + 1]]
    order: Array  # rows, grouped by key, those of a key in the order of arrival
    counts_before: Array  # the counters of each key (`engine/fleet.py: COUNTS`) before the block
    parts: dict[int, Block]  # by shard
    labels: Labels
    number: int  # number of the first row among all rows of the fleet

    @property
    def scores(self) -> Array:
        """The score of each row."""
        return next(iter(self.parts.values())).scores

    @property
    def deviations(self) -> Array:
        """The signed distance of each value of a row from the mean of its key's window, in standard deviations."""
        return next(iter(self.parts.values())).deviations

    @property
    def X(self) -> Array:  # noqa: N802
        """The points; NaN for unusable rows."""
        return next(iter(self.parts.values())).X

    @property
    def is_usable(self) -> Array:
        """Which rows are usable."""
        return ~np.isnan(self.X[:, 0])

    def rows_of(self, i: int) -> Array:
        """Return the rows of key i, in the order of arrival."""
        return self.order[self.starts[i] : self.starts[i + 1]]

    def key_of(self, i: int) -> Key:
        """Return key i."""
        return self.keys[self.order[self.starts[i]]]

    def indices(self) -> Array:
        """Return the index of each row among all rows of its key."""
        offsets = self._repeated(self.starts[:-1] - self.counts_before["n_seen"])
        return self._by_row(np.arange(len(self.keys)) - offsets)

    def n_scored_before(self) -> Array:
        """Return how many rows of its key were scored before each row."""
        is_usable = self.is_usable[self.order]
        n_before = np.cumsum(is_usable) - is_usable
        return self._by_row(n_before - self._repeated(n_before[self.starts[:-1]] - self.counts_before["n_scored"]))

    def number_of(self, i: int, position: int) -> int:
        """Return the number, in the key's window, of the row at `position` among the rows of key i in this block."""
        n_usable = np.count_nonzero(self.is_usable[self.rows_of(i)[:position]])
        return int(self.counts_before[i]["number"] + n_usable)

    def labelled_rows(self, i: int) -> LabelledRows:
        """Return the rows of key i with their labels."""
        rows, labels = self.rows_of(i), self.labels
        first = int(self.counts_before[i]["n_seen"])
        return LabelledRows(first, labels.are_anomalies[rows], self.scores[rows], labels.surprises[rows])

    def keys_with_alarms(self) -> list[int]:
        """Return the numbers i of the keys that have an alarm in this block."""
        has_alarm = np.logical_or.reduceat(self.labels.are_anomalies[self.order], self.starts[:-1])
        alarms: list[int] = np.flatnonzero(has_alarm).tolist()
        return alarms

    def _repeated(self, values: Array) -> Array:
        """Repeat the value of each key for each of its rows; the result is in the order of `order`."""
        return np.repeat(values, np.diff(self.starts))

    def _by_row(self, values: Array) -> Array:
        """Rearrange values from the order of `order` to that of the rows."""
        by_row = np.empty_like(values)
        by_row[self.order] = values
        return by_row


def plan_block(keys: list[Key], entries: Array, X: Array, shards: Shards, number: int) -> KeyedBlock:
    """Return the block of these rows, whose keys have these entries; nothing is processed yet."""
    order = np.argsort(entries, kind="stable")
    used, starts = np.unique(entries[order], return_index=True)
    starts = np.append(starts, len(entries))
    indices, detectors = np.divmod(used, shards.keys_per_shard)
    counts_before = np.concatenate([shards.shard(i).counts[detectors[indices == i]] for i in np.unique(indices)])
    groups = np.zeros(used.size, GROUP)
    groups["detector"], groups["first"], groups["end"] = detectors, starts[:-1], starts[1:]
    groups["number"], groups["n_seen"] = counts_before["number"], counts_before["n_seen"]
    scores, deviations = np.full(len(entries), np.nan), np.zeros(X.shape)
    parts = {int(i): Block(groups[indices == i], order, X, scores, deviations) for i in np.unique(indices)}
    labels = Labels(np.empty(len(entries)), np.empty(len(entries)), np.zeros(len(entries), np.bool_))
    return KeyedBlock(keys, entries, used, starts, order, counts_before, parts, labels, number)
