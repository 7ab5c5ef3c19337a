"""What must survive a power cut: configurations, a journal, snapshots and answers, in one file of SQLite.

The journal comes first: what is to be done is written and synced before it is done. A detector is its last snapshot and
what the journal has after it, so that doing it again gives it back to the last bit. Everything has a digest; what is
damaged is moved aside and told, never used.
"""

import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from imondrian.service.errors import StorageError
from imondrian.service.journal import Entry, Versions, current_versions, digest_of
from imondrian.service.replies import Reply, SavedReply
from imondrian.service.sqlite import (
    WriteAheadLog,
    finish_interrupted_rescue,
    is_intact,
    make_private_folder,
    open_database,
    rescue,
)

FILE = "imondrian.db"
_N_SNAPSHOTS = 2  # so that there is one before the last
_FREED_PAGES = 50_000  # given back to the disk at once, at most
_LARGE = 2**20


class StoredDetector(NamedTuple):
    """A detector as it is kept."""

    id: int
    name: str
    configuration: dict[str, Any]
    created: float


class Snapshot(NamedTuple):
    """A detector as it was."""

    number: int  # of the entry that it follows
    content: bytes  # a model file
    history: bytes  # the latest rows


class Store:
    """One file of SQLite; all calls come from one thread at a time, and change something only in a `transaction`."""

    def __init__(self, folder: Path) -> None:
        self.complaints: list[str] = []  # what was damaged when it was opened
        self.versions = current_versions()  # under which entries are written from now on
        self._with_versions: set[int] = set()  # detectors of which that is written
        path = folder / FILE
        with _storage_errors(path):
            make_private_folder(folder)
            if finish_interrupted_rescue(path):
                self.complaints.append(_rescue_message(path))
            log = WriteAheadLog(path.with_name(f"{FILE}-wal"))
            self._database, n_read = open_database(path)
            if not is_intact(self._database):
                self._database = rescue(self._database, path)
                self.complaints.append(_rescue_message(path))
        if not log.is_sound or (n_read is not None and n_read < log.n_committed):
            self.complaints.append("The end of the write-ahead log is damaged: what was sent last may be missing.")

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Let all that is written inside be there afterwards, for good, or nothing of it."""
        with _storage_errors():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                self._with_versions.clear()  # it may have been written in this transaction
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    def write_filler(self) -> None:
        """Write as much as a large request takes, to see whether it can be kept; `clear` takes it away again."""
        self._database.execute("INSERT INTO damaged (detector, number, content) VALUES (0, 0, zeroblob(?))", (_LARGE,))

    def delete_filler(self) -> None:
        """Take away what `fill` wrote."""
        self._database.execute("DELETE FROM damaged WHERE detector = 0")

    # -- detectors ----------------------------------------------------------------------------------------------

    def detectors(self) -> list[tuple[int, str | None]]:
        """Return number and name of each detector, oldest first; None in place of a name that is not text."""
        sql = "SELECT id, CASE typeof(name) WHEN 'text' THEN CAST(name AS BLOB) END FROM detectors ORDER BY id"
        with _storage_errors():
            return [(id_, _text(name)) for id_, name in self._database.execute(sql).fetchall()]

    def detector(self, detector: int) -> StoredDetector:
        """Return a detector; if anything in its row is damaged, it is a StorageError."""
        sql = "SELECT id, name, configuration, created FROM detectors WHERE id = ?"
        with _storage_errors():
            id_, name, configuration, created = self._database.execute(sql, (detector,)).fetchone()
        if not isinstance(created, float) or not 0.0 <= created < math.inf:
            raise StorageError(f"The time when {name!r} was created is damaged: it is {created!r:.100}.")
        return StoredDetector(id_, name, _configuration(name, configuration), created)

    def add_detector(self, name: str, configuration: dict[str, Any], created: float) -> int:
        """Keep a new detector, and give its number."""
        values = (name, json.dumps(configuration), created)
        sql = "INSERT INTO detectors (name, configuration, created) VALUES (?, ?, ?)"
        return int(self._database.execute(sql, values).lastrowid or 0)

    def remove_detector(self, detector: int) -> None:
        """Forget a detector and all that is kept of it."""
        self._database.execute("DELETE FROM detectors WHERE id = ?", (detector,))
        for table in ("entries", "versions", "snapshots", "answers", "damaged"):
            self._database.execute(f"DELETE FROM {table} WHERE detector = ?", (detector,))  # noqa: S608 (names from above)
        self._free()

    # -- the journal --------------------------------------------------------------------------------------------

    def add_entries(self, detector: int, entries: list[Entry]) -> None:
        """Write entries, and the versions under which they are written unless they are those of the entry before."""
        if detector not in self._with_versions:
            self._note_versions(detector, entries[0].number)
        self._database.executemany(
            "INSERT INTO entries (detector, number, kind, content, request, time, digest) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(detector, *entry, digest_of(detector, *entry)) for entry in entries],
        )

    def _note_versions(self, detector: int, number: int) -> None:
        versions = json.dumps(self.versions, sort_keys=True)
        self._database.execute(
            "INSERT INTO versions SELECT ?, ?, ? WHERE ? IS NOT"
            " (SELECT content FROM versions WHERE detector = ? ORDER BY number DESC LIMIT 1)",
            (detector, number, versions, versions, detector),
        )
        self._with_versions.add(detector)

    def first_number(self, detector: int) -> int:
        """Give the number of the first entry that is there, 0 without any."""
        with _storage_errors():
            sql = "SELECT min(number) FROM entries WHERE detector = ?"
            return int(self._database.execute(sql, (detector,)).fetchone()[0] or 0)

    def entries_after(self, detector: int, number: int) -> list[Entry]:
        """Give the entries after a number, in order; from one that is damaged or missing on, none."""
        sql = (
            "SELECT number, kind, content, request, time, digest FROM entries"
            " WHERE detector = ? AND number > ? ORDER BY number"
        )
        entries: list[Entry] = []
        try:
            for *values, digest in self._database.execute(sql, (detector, number)):
                entry = Entry(*values)
                if entry.number != number + len(entries) + 1 or digest != digest_of(detector, *entry):
                    break
                entries.append(entry)
        except sqlite3.DatabaseError:  # a page that cannot be read
            return entries
        return entries

    def other_versions(self, detector: int, first: int, last: int) -> list[Versions]:
        """Return the versions other than the present ones under which entries were written; unknown ones are empty."""
        sql = "SELECT number, content FROM versions WHERE detector = ? AND number <= ? ORDER BY number DESC"
        with _storage_errors():
            rows = self._database.execute(sql, (detector, last)).fetchall()
        found: list[Versions] = []
        for number, text in rows:
            found.append(_versions(text))
            if number <= first:
                break
        else:
            found.append({})
        return [versions for versions in reversed(found) if versions != self.versions]

    def cut(self, detector: int, snapshot_number: int, number: int) -> int:
        """Leave nothing after entry `number` and no snapshot after `n_kept`; give the number of entries set aside."""
        last = (detector, number)
        n_lost = self._count("entries", last)
        n_others = sum(self._count(table, last) for table in ("answers", "versions"))
        if n_lost + self._count("snapshots", (detector, snapshot_number)) + n_others == 0:
            return 0  # a disk that is full need not be written to
        with self.transaction():
            self._database.execute(
                "DELETE FROM snapshots WHERE detector = ? AND number > ?", (detector, snapshot_number)
            )
            self._database.execute("DELETE FROM answers WHERE detector = ? AND number > ?", last)
            self._database.execute("DELETE FROM versions WHERE detector = ? AND number > ?", last)
            if n_lost:
                self._database.execute("DELETE FROM damaged WHERE detector = ?", (detector,))
                self._database.execute(
                    "INSERT INTO damaged SELECT * FROM entries WHERE detector = ? AND number > ?", last
                )
                self._database.execute("DELETE FROM entries WHERE detector = ? AND number > ?", last)
        return n_lost

    def _count(self, table: str, after: tuple[int, int]) -> int:
        with _storage_errors():
            sql = f"SELECT count(*) FROM {table} WHERE detector = ? AND number > ?"  # noqa: S608 (names from above)
            return int(self._database.execute(sql, after).fetchone()[0])

    # -- snapshots and answers ----------------------------------------------------------------------------------

    def add_snapshot(self, detector: int, number: int, content: bytes, history: bytes = b"") -> None:
        """Keep the state after entry `number`; what only states older than the one before it need is let go."""
        values = (detector, number, content, history, digest_of(number, content, history))
        self._database.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?)", values)
        kept = self._snapshot_numbers(detector)[:_N_SNAPSHOTS]
        self._database.execute("DELETE FROM snapshots WHERE detector = ? AND number < ?", (detector, kept[-1]))
        if len(kept) == _N_SNAPSHOTS:
            self._database.execute("DELETE FROM entries WHERE detector = ? AND number <= ?", (detector, kept[-1]))
        self._free()

    def snapshots(self, detector: int) -> Iterator[Snapshot]:
        """Give the snapshots, the latest first; of one that is damaged, nothing but its number."""
        sql = "SELECT content, history, digest FROM snapshots WHERE detector = ? AND number = ?"
        for number in self._snapshot_numbers(detector):
            try:
                content, history, digest = self._database.execute(sql, (detector, number)).fetchone()
            except sqlite3.DatabaseError:  # a page that cannot be read
                content = history = digest = b""
            is_sound = digest == digest_of(number, content, history)
            yield Snapshot(number, content, history) if is_sound else Snapshot(number, b"", b"")

    def add_replies(self, detector: int, given: list[SavedReply], oldest: int) -> None:
        """Keep answers, and none to entries before the oldest."""
        rows = [
            (detector, number, request, sent, *answer, digest_of(request, sent, *answer))
            for number, request, sent, answer in given
        ]
        self._database.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        self._database.execute("DELETE FROM answers WHERE detector = ? AND number < ?", (detector, oldest))

    def replies(self, detector: int, number: int) -> tuple[list[SavedReply], int]:
        """Give the answers to entries up to a number, the oldest first, and how many are damaged."""
        sql = (
            "SELECT number, request, sent, status, content, digest FROM answers"
            " WHERE detector = ? AND number <= ? ORDER BY number"
        )
        with _storage_errors():
            rows = self._database.execute(sql, (detector, number)).fetchall()
        sound = [
            SavedReply(number, request, sent, Reply(status, content))
            for number, request, sent, status, content, digest in rows
            if digest == digest_of(request, sent, status, content)
        ]
        return sound, len(rows) - len(sound)

    def _snapshot_numbers(self, detector: int) -> list[int]:
        sql = "SELECT number FROM snapshots WHERE detector = ? ORDER BY number DESC"
        with _storage_errors():
            return [number for (number,) in self._database.execute(sql, (detector,))]

    def _free(self) -> None:
        """Give unused pages back to the disk, but for as many as are used: the next snapshot takes them again."""
        n_unused, n_pages = (
            self._database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_count")
        )
        for _ in range(min(2 * n_unused - n_pages, _FREED_PAGES)):
            self._database.execute("PRAGMA incremental_vacuum(1)")  # of more, Python would do the first only


def _rescue_message(path: Path) -> str:
    return f"{path} was damaged: what could be read was copied; it is kept as {path}.damaged."


def _text(content: bytes | None) -> str | None:
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return None


def _configuration(name: str, text: Any) -> dict[str, Any]:
    try:
        configuration = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise StorageError(f"The configuration of {name!r} is damaged: {error}.") from None
    if not isinstance(configuration, dict):
        raise StorageError(f"The configuration of {name!r} is damaged: it is {configuration!r:.100}.")
    return configuration


def _versions(text: str) -> Versions:
    """Read versions; damaged ones are unknown."""
    try:
        found = json.loads(text)
    except (ValueError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


@contextmanager
def _storage_errors(path: Path | None = None) -> Iterator[None]:
    """Turn what SQLite and the disk complain about into the one documented error."""
    told = "The data could not be kept" if path is None else f"{path} cannot be used"
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(f"{told}: {error}.") from error
    except OSError as error:
        raise StorageError(f"{told}: {error.strerror}.") from error
