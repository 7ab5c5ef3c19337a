"""Rows of many keys as blocks: how many rows a block takes, and its groups in every shard."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from imondrian.alarms.incidents import LabelledRows
from imondrian.engine.fleet import GROUP, Block, Labels
from imondrian.engine.jit import Array
from imondrian.fleet.shards import Shards

if TYPE_CHECKING:
    from collections import OrderedDict

MAX_ROWS = 2**17


class Limits(NamedTuple):
    """How many rows a block may have."""

    max_keys: int  # different keys
    max_rows_per_key: int
    drops_keys: bool  # whether keys that leave memory are lost


def block_end(keys: list[str | int], first: int, entries: "OrderedDict[str | int, int]", limits: Limits) -> int:
    """Return the end of the block that begins with row `first`; `entries` has the keys in memory, oldest use first.

    If keys are dropped, a block ends before a key that would have been dropped had its rows come one by one: which keys
    are dropped does not depend on the blocks.
    """
    counts: dict[str | int, int] = {}
    n_free, idle, dropped = limits.max_keys - len(entries), iter(entries), set[str | int]()
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
    """A block of rows, planned: with it, an interrupted block can be completed."""

    keys: list[str | int]
    entries: Array  # the entry of each row's key
    used: Array  # the entries of the block, each once, ascending
    starts: Array  # the rows of entry used[i] are order[starts[i] : starts[i + 1]]
    order: Array  # rows, entry by entry, each in the order of arrival
    first: Array  # counts of each entry before the block
    parts: dict[int, Block]  # of every shard
    labels: Labels
    number: int  # of the first row in the fleet

    @property
    def scores(self) -> Array:
        """The score of each row."""
        return next(iter(self.parts.values())).scores

    @property
    def deviations(self) -> Array:
        """How far each row is from the mean of its key's window."""
        return next(iter(self.parts.values())).deviations

    @property
    def X(self) -> Array:  # noqa: N802
        """The points; NaN for unusable rows."""
        return next(iter(self.parts.values())).X

    @property
    def is_usable(self) -> Array:
        """Whether each row is usable."""
        return ~np.isnan(self.X[:, 0])

    def rows_of(self, i: int) -> Array:
        """Return the rows of the i-th entry, in the order of arrival."""
        return self.order[self.starts[i] : self.starts[i + 1]]

    def key_of(self, i: int) -> str | int:
        """Return the key of the i-th entry."""
        return self.keys[self.order[self.starts[i]]]

    def indices(self) -> Array:
        """Return the index of each row among all rows of its key."""
        return self._by_row(np.arange(len(self.keys)) - self._repeated(self.starts[:-1] - self.first["n_seen"]))

    def n_scored_before(self) -> Array:
        """Return how many rows of its key were scored before each row."""
        is_usable = self.is_usable[self.order]
        n_before = np.cumsum(is_usable) - is_usable
        return self._by_row(n_before - self._repeated(n_before[self.starts[:-1]] - self.first["n_scored"]))

    def number_of(self, i: int, position: int) -> int:
        """Return the number in its window of the row at a position among the rows of the i-th entry."""
        n_usable = np.count_nonzero(self.is_usable[self.rows_of(i)[:position]])
        return int(self.first[i]["number"] + n_usable)

    def labelled(self, i: int) -> LabelledRows:
        """Return the rows of the i-th entry with their labels."""
        rows, labels = self.rows_of(i), self.labels
        first = int(self.first[i]["n_seen"])
        return LabelledRows(first, labels.are_anomalies[rows], self.scores[rows], labels.surprises[rows])

    def entries_with_alarms(self) -> list[int]:
        """Return the positions of the entries that have an alarm in this block."""
        has_alarm = np.logical_or.reduceat(self.labels.are_anomalies[self.order], self.starts[:-1])
        alarms: list[int] = np.flatnonzero(has_alarm).tolist()
        return alarms

    def _repeated(self, values: Array) -> Array:
        """Return the value of its entry for each row, entry by entry."""
        return np.repeat(values, np.diff(self.starts))

    def _by_row(self, values: Array) -> Array:
        """Return values that are given entry by entry in the order of the rows."""
        by_row = np.empty_like(values)
        by_row[self.order] = values
        return by_row


def plan(keys: list[str | int], entries: Array, X: Array, shards: Shards, number: int) -> KeyedBlock:
    """Plan a block of rows whose keys have these entries."""
    order = np.argsort(entries, kind="stable")
    used, starts = np.unique(entries[order], return_index=True)
    starts = np.append(starts, len(entries))
    indices, detectors = np.divmod(used, shards.keys_per_shard)
    before = np.concatenate([shards.shard(i).counts[detectors[indices == i]] for i in np.unique(indices)])
    groups = np.zeros(used.size, GROUP)
    groups["detector"], groups["first"], groups["end"] = detectors, starts[:-1], starts[1:]
    groups["number"], groups["n_seen"] = before["number"], before["n_seen"]
    scores, deviations = np.full(len(entries), np.nan), np.zeros(X.shape)
    parts = {int(i): Block(groups[indices == i], order, X, scores, deviations) for i in np.unique(indices)}
    labels = Labels(np.empty(len(entries)), np.empty(len(entries)), np.zeros(len(entries), np.bool_))
    return KeyedBlock(keys, entries, used, starts, order, before, parts, labels, number)
