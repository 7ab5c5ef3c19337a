"""The table with the open incident and the latest alarms of each key, as of a snapshot: one value per key.

A snapshot is complete when the file of the fleet is saved. Saving that file is not part of the transaction that writes
this table, so a key may have two values: one of the last complete snapshot, and one of an interrupted snapshot. Each
value has the number of the last journal entry that it includes; the number in the file of the fleet determines which
value is used.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from imondrian.service.changes.journal import digest_of


class StoredContent(NamedTuple):
    """What is stored for a key."""

    key: str
    number: int  # of the last journal entry that it includes
    content: bytes | None  # empty if there is nothing to store; None if it is damaged


class KeyIncidentTable:
    """The table of the incidents of keys; changed only inside a transaction."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def contents(self, detector: int) -> Iterator[StoredContent]:
        """Yield everything that is stored for the keys of a detector."""
        sql = "SELECT key, number, content, digest FROM key_incidents WHERE detector = ?"
        for key, number, content, digest in self._database.execute(sql, (detector,)):
            if isinstance(key, str) and isinstance(number, int):
                is_valid = isinstance(content, bytes) and digest == digest_of(detector, key, number, content)
                yield StoredContent(key, number, content if is_valid else None)

    def add(self, detector: int, number: int, contents: Iterable[tuple[str, bytes]]) -> None:
        """Store the contents of keys after the journal entry `number`, beside those of the last snapshot."""
        rows = [
            (detector, key, number, content, digest_of(detector, key, number, content)) for key, content in contents
        ]
        self._database.executemany("INSERT OR REPLACE INTO key_incidents VALUES (?, ?, ?, ?, ?)", rows)

    def remove_others(self, detector: int, number: int, keys: Iterable[str]) -> None:
        """Delete the contents of keys from all snapshots except the one after the journal entry `number`."""
        sql = "DELETE FROM key_incidents WHERE detector = ? AND key = ? AND (number != ? OR content = x'')"
        self._database.executemany(sql, [(detector, key, number) for key in keys])
