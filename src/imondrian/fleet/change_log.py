"""The log of changed and removed keys, for incremental snapshots of a fleet."""

from collections.abc import Iterable
from typing import NamedTuple

from imondrian.fleet.keys import Key


class _Log(NamedTuple):
    """Changed keys, with True for removed ones.

    Only `record` changes a dictionary in place. The other methods replace the log as a whole, so that an interruption
    leaves the old or the new one.
    """

    reported: dict[Key, bool]  # in the last report, and not confirmed
    latest: dict[Key, bool]  # after the last report


class ChangeLog:
    """Records which keys have changed or were removed, after `start` has been called."""

    def __init__(self) -> None:
        self._log: _Log | None = None

    @property
    def is_active(self) -> bool:
        """True after `start` was called."""
        return self._log is not None

    def record(self, keys: Iterable[Key], *, is_removed: bool) -> None:
        """Record that keys changed or were removed; recording a key twice has the same effect as once."""
        if self._log is not None:
            self._log.latest.update(dict.fromkeys(keys, is_removed))

    def start(self, keys: Iterable[Key]) -> None:
        """Start to record changes; these keys count as changed."""
        self._log = _Log({}, dict.fromkeys(keys, False))

    def report(self) -> dict[Key, bool]:
        """Return all changed keys that are not confirmed, with True for removed ones."""
        if self._log is None:
            return {}
        self._log = _Log({**self._log.reported, **self._log.latest}, {})
        return self._log.reported

    def confirm(self) -> None:
        """Remove the keys of the last report from the log, except those that have changed again."""
        if self._log is not None:
            self._log = self._log._replace(reported={})
