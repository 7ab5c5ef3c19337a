"""Which keys of a fleet have changed since they were last saved elsewhere, for incremental snapshots."""

from collections.abc import Iterable
from typing import NamedTuple

from imondrian.fleet.results import Key


class _Log(NamedTuple):
    """Keys, each with True if it was removed; replaced as a whole, so that an interruption leaves old or new."""

    reported: dict[Key, bool]  # but not confirmed
    latest: dict[Key, bool]  # since the last report


class ChangeLog:
    """Records changed and removed keys, from the call of `start` on."""

    def __init__(self) -> None:
        self._log: _Log | None = None

    @property
    def is_active(self) -> bool:
        """Whether changes are recorded."""
        return self._log is not None

    def record(self, keys: Iterable[Key], *, is_removed: bool) -> None:
        """Record that keys changed or were removed; recording them twice is the same as once."""
        if self._log is not None:
            self._log.latest.update(dict.fromkeys(keys, is_removed))

    def start(self, keys: Iterable[Key]) -> None:
        """Start to record changes; these keys have changed."""
        self._log = _Log({}, dict.fromkeys(keys, False))

    def report(self) -> dict[Key, bool]:
        """Return the keys of the reports that were not confirmed and of the time since, True for removed ones."""
        if self._log is None:
            return {}
        self._log = _Log({**self._log.reported, **self._log.latest}, {})
        return self._log.reported

    def confirm(self) -> None:
        """Do not report the keys of the last report again."""
        if self._log is not None:
            self._log = self._log._replace(reported={})
