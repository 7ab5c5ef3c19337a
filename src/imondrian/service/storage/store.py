"""Durable storage in one SQLite file: configurations, journals, snapshots and saved replies.

Every change is written to the journal and synced before it is applied. A detector is stored as its last snapshot and
the journal after it; replaying the journal restores it to the last bit. Every entry, snapshot, reply and event has a
digest, and is not used unless the digest matches; damaged entries are set aside, and damage to a detector is reported.
"""

import json
import math
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from imondrian.base.errors import DamagedFileError
from imondrian.service.changes.journal import Entry, Versions, current_versions, digest_of
from imondrian.service.changes.replies import Reply, SavedReply
from imondrian.service.errors import StorageError
from imondrian.service.storage.event_table import EventTable
from imondrian.service.storage.key_rows import LatestRowsTable
from imondrian.service.storage.keyed_incident_log import KeyIncidentTable
from imondrian.service.storage.removals import Removals
from imondrian.service.storage.sqlite import free_pages, make_private_file, open_or_rescue

FILE = "imondrian.db"
_BACKUP = f"{FILE}.unfinished-backup"
_N_SNAPSHOTS = 2  # per detector: the previous one is used if the last one is damaged
_MAX_FREED_PAGES = 50_000  # returned to the file system at once
_FILLER_BYTES = 2**20
_PAGES_PER_STEP = 1_000  # of a backup; between two steps, requests are stored
_SECONDS_BETWEEN_TRIES = 0.01  # of a step of a backup, while a transaction is open
_SPARE_BYTES = 64 * 2**20  # disk space that a backup leaves free


class StoredDetector(NamedTuple):
    """The row of a detector in the store."""

    id: int
    name: str
    configuration: dict[str, Any]
    created: float
    is_former: bool = False  # stored by a version without incidents


class Snapshot(NamedTuple):
    """The state of a detector after a journal entry."""

    number: int  # of the entry
    content: bytes  # a model file
    history: bytes  # the latest rows


class AttachedFile(Protocol):
    """A file that becomes part of a backup."""

    @property
    def detector(self) -> int:
        """The detector to which it belongs."""

    @property
    def n_bytes(self) -> int:
        """Its size."""

    def chunks(self) -> Iterator[bytes]:
        """Yield its content in pieces."""


class Store:
    """The SQLite store; changed only inside a `transaction`, and used by one thread at a time, except for `backup`.

    Attributes
    ----------
    problems : list of str
        Damage found when the file was opened.
    events : EventTable
        The stored events of incidents.
    latest_rows : LatestRowsTable
        The latest rows of each key of detectors with a key.
    key_incidents : KeyIncidentTable
        The open incident and the latest alarms of each key.
    removals : Removals
        Removes detectors.
    """

    def __init__(self, folder: Path) -> None:
        self.versions = current_versions()  # recorded with new entries
        self._with_versions: set[int] = set()  # detectors for which these versions are recorded
        self._path = path = folder / FILE
        with _storage_errors(path):
            self._database, self.problems = open_or_rescue(path)
            for name in (_BACKUP, f"{_BACKUP}-journal"):  # left over from a process that was killed
                (folder / name).unlink(missing_ok=True)
        self.events, self.latest_rows = EventTable(self._database), LatestRowsTable(self._database)
        self.key_incidents = KeyIncidentTable(self._database)
        self.removals = Removals(self._database, self.events)

    def backup(self, files: Sequence[AttachedFile] = ()) -> tuple[IO[bytes], int]:
        """Copy the database while other threads change it; return the copy, opened for reading, and its size.

        The copy also contains `files`, in a table that `attached_files` and `attached_chunks` read. The copy has no
        name, so it disappears when it is closed.

        SQLite copies the pages in steps, and repeats those that a transaction of this connection has changed
        meanwhile, so the copy has the state after one of the transactions.

        Raises
        ------
        StorageError
            If the disk has too little space for the copy.
        """
        path = self._path.with_name(_BACKUP)
        with _storage_errors(path):
            n_needed = self._path.stat().st_size + sum(file.n_bytes for file in files) + _SPARE_BYTES
            if (n_free := shutil.disk_usage(path.parent).free) < n_needed:
                raise StorageError(f"A backup needs {n_needed:,} bytes of disk space, but only {n_free:,} are free.")
            path.unlink(missing_ok=True)  # left over from a process that was killed
            make_private_file(path)
            try:
                copy = sqlite3.connect(path)
                try:
                    self._database.backup(copy, pages=_PAGES_PER_STEP, sleep=_SECONDS_BETWEEN_TRIES)
                    _attach(copy, files)
                finally:
                    copy.close()
                return path.open("rb"), path.stat().st_size
            finally:
                path.unlink(missing_ok=True)

    def attached_files(self) -> list[int]:
        """Return the detectors that have an attached file; there are none unless a backup was just restored."""
        with _storage_errors():
            sql = "SELECT DISTINCT detector FROM key_files WHERE typeof(detector) = 'integer'"
            return [detector for (detector,) in self._database.execute(sql)]

    def attached_chunks(self, detector: int) -> Iterator[bytes]:
        """Yield the content of an attached file in pieces; raise DamagedFileError if a piece is missing or damaged."""
        is_valid = "typeof(position) = 'integer' AND typeof(content) = 'blob'"
        sql = (
            f"SELECT CASE WHEN {is_valid} THEN position END, CASE WHEN {is_valid} THEN content END"  # noqa: S608 (no input)
            " FROM key_files WHERE detector = ? ORDER BY key_files.position"
        )
        n_chunks = 0
        try:
            for position, chunk in self._database.execute(sql, (detector,)):
                if position != n_chunks:
                    break
                yield chunk
                n_chunks += 1
            else:
                return
        except sqlite3.DatabaseError as error:
            _raise_unless_damaged(error)
        raise DamagedFileError(f"The file with its keys is damaged in the backup: piece {n_chunks} cannot be used.")

    def remove_attached_files_except(self, detectors: Iterable[int]) -> None:
        """Delete all attached files except those of the given detectors."""
        kept = list(detectors)
        marks = ", ".join("?" for _ in kept)
        self._database.execute(f"DELETE FROM key_files WHERE detector NOT IN ({marks})", kept)  # noqa: S608 (only marks)
        free_pages(self._database, _MAX_FREED_PAGES)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything written inside the context, or nothing if it raises."""
        with _storage_errors():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                self._with_versions.clear()  # the versions may have been written in this transaction
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    def write_filler(self) -> None:
        """Write as much as a large request, to test the disk; `delete_filler` removes it."""
        self._database.execute(
            "INSERT INTO damaged (detector, number, content) VALUES (0, 0, zeroblob(?))", (_FILLER_BYTES,)
        )

    def delete_filler(self) -> None:
        """Delete what `write_filler` wrote."""
        self._database.execute("DELETE FROM damaged WHERE detector = 0")

    # -- detectors ----------------------------------------------------------------------------------------------

    def detectors(self) -> list[tuple[int, str | None]]:
        """Return the id and name of each detector, oldest first; the name is None if it is damaged (not text)."""
        with _storage_errors():
            rows = self._database.execute("SELECT id, name FROM detectors ORDER BY id").fetchall()
        return [(id_, name if isinstance(name, str) else None) for id_, name in rows]

    def detector(self, detector: int) -> StoredDetector:
        """Return the row of a detector; raise StorageError if it is damaged."""
        sql = "SELECT id, name, configuration, created FROM detectors WHERE id = ?"
        with _storage_errors():
            id_, name, configuration, created = self._database.execute(sql, (detector,)).fetchone()
        if not isinstance(created, float) or not 0.0 <= created < math.inf:
            raise StorageError(f"The creation time of {name!r} is damaged: it is {created!r:.100}.")
        return StoredDetector(id_, name, _configuration(name, configuration), created)

    def has_detector(self, detector: int) -> bool:
        """Return True unless the detector has been removed."""
        return self._database.execute("SELECT 1 FROM detectors WHERE id = ?", (detector,)).fetchone() is not None

    def last_detector_id(self) -> int:
        """Return the highest id of any detector, including removed ones; 0 if there was none."""
        with _storage_errors():
            row = self._database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'detectors'").fetchone()
        return row[0] if row is not None and isinstance(row[0], int) else 0

    def add_detector(self, name: str, configuration: dict[str, Any], created: float) -> int:
        """Insert a detector, and return its id."""
        values = (name, json.dumps(configuration), created)
        sql = "INSERT INTO detectors (name, configuration, created) VALUES (?, ?, ?)"
        return int(self._database.execute(sql, values).lastrowid or 0)

    # -- the journal --------------------------------------------------------------------------------------------

    def add_entries(self, detector: int, entries: list[Entry]) -> None:
        """Insert entries; record the current versions if they differ from those recorded for earlier entries."""
        if detector not in self._with_versions:
            self._add_versions(detector, entries[0].number)
        self._database.executemany(
            "INSERT INTO entries (detector, number, kind, content, request, time, digest) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(detector, *entry, digest_of(detector, *entry)) for entry in entries],
        )

    def _add_versions(self, detector: int, number: int) -> None:
        versions = json.dumps(self.versions, sort_keys=True)
        self._database.execute(
            "INSERT INTO versions SELECT ?, ?, ? WHERE ? IS NOT"
            " (SELECT content FROM versions WHERE detector = ? ORDER BY number DESC LIMIT 1)",
            (detector, number, versions, versions, detector),
        )
        self._with_versions.add(detector)

    def first_number(self, detector: int) -> int:
        """Return the number of the first entry, or 0 if there are no entries."""
        with _storage_errors():
            sql = "SELECT min(number) FROM entries WHERE detector = ?"
            return int(self._database.execute(sql, (detector,)).fetchone()[0] or 0)

    def entries_after(self, detector: int, number: int) -> list[Entry]:
        """Return the entries after a number, in order, up to the first one that is damaged or missing."""
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
        except sqlite3.DatabaseError as error:
            _raise_unless_damaged(error)
        return entries

    def other_versions(self, detector: int, first: int, last: int) -> list[Versions]:
        """Return the versions recorded for the entries `first` to `last`, except the current ones; {} means unknown."""
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

    def last_number(self, detector: int) -> int:
        """Return the largest number of an entry that the store knows of, even if the entry itself is lost."""
        numbers = [self.events.announced(detector).entry]
        for table in ("entries", "snapshots", "answers", "versions"):
            sql = f"SELECT max(number) FROM {table} WHERE detector = ?"  # noqa: S608 (names from above)
            with _storage_errors():
                numbers.append(self._database.execute(sql, (detector,)).fetchone()[0])
        return max(number for number in numbers if isinstance(number, int))

    def cut(self, detector: int, snapshot_number: int, number: int, following: Entry | None = None) -> int:
        """Discard everything after entry `number`, and snapshots after `snapshot_number`.

        Entries are moved to the table `damaged`; everything else is deleted. Then the entry `following`, if given, is
        added. Return the number of entries that were moved.
        """
        after = (detector, number)
        n_lost = self._count("entries", after)
        n_others = sum(self._count(table, after) for table in ("answers", "versions"))
        n_snapshots = self._count("snapshots", (detector, snapshot_number))
        if n_lost + n_snapshots + n_others == 0 and following is None:
            return 0  # nothing to write: the disk may be full
        with self.transaction():
            self._database.execute(
                "DELETE FROM snapshots WHERE detector = ? AND number > ?", (detector, snapshot_number)
            )
            self._database.execute("DELETE FROM answers WHERE detector = ? AND number > ?", after)
            self._database.execute("DELETE FROM versions WHERE detector = ? AND number > ?", after)
            if n_lost:
                self._database.execute("DELETE FROM damaged WHERE detector = ?", (detector,))
                self._database.execute(
                    "INSERT INTO damaged SELECT * FROM entries WHERE detector = ? AND number > ?", after
                )
                self._database.execute("DELETE FROM entries WHERE detector = ? AND number > ?", after)
            if following is not None:
                self.events.cut(detector, number, following.time)
                self.add_entries(detector, [following])
        return n_lost

    def _count(self, table: str, after: tuple[int, int]) -> int:
        with _storage_errors():
            sql = f"SELECT count(*) FROM {table} WHERE detector = ? AND number > ?"  # noqa: S608 (names from above)
            return int(self._database.execute(sql, after).fetchone()[0])

    # -- snapshots and replies ----------------------------------------------------------------------------------

    def add_snapshot(self, detector: int, number: int, content: bytes, history: bytes = b"") -> None:
        """Insert a snapshot; delete snapshots before the previous one, and entries that are no longer needed."""
        values = (detector, number, content, history, digest_of(number, content, history))
        self._database.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?)", values)
        latest = self._snapshot_numbers(detector)[:_N_SNAPSHOTS]
        self._database.execute("DELETE FROM snapshots WHERE detector = ? AND number < ?", (detector, latest[-1]))
        if len(latest) == _N_SNAPSHOTS:
            self._database.execute("DELETE FROM entries WHERE detector = ? AND number <= ?", (detector, latest[-1]))
        free_pages(self._database, _MAX_FREED_PAGES)

    def remove_entries(self, detector: int, number: int) -> None:
        """Delete the entries up to a number, which are no longer needed."""
        self._database.execute("DELETE FROM entries WHERE detector = ? AND number <= ?", (detector, number))
        free_pages(self._database, _MAX_FREED_PAGES)

    def snapshots(self, detector: int) -> Iterator[Snapshot]:
        """Yield the snapshots, latest first; a damaged one has its number and no content."""
        sql = "SELECT content, history, digest FROM snapshots WHERE detector = ? AND number = ?"
        for number in self._snapshot_numbers(detector):
            try:
                content, history, digest = self._database.execute(sql, (detector, number)).fetchone()
            except sqlite3.DatabaseError as error:
                _raise_unless_damaged(error)
                content = history = digest = b""
            is_valid = digest == digest_of(number, content, history)
            yield Snapshot(number, content, history) if is_valid else Snapshot(number, b"", b"")

    def add_replies(self, detector: int, replies: list[SavedReply], oldest: int) -> None:
        """Insert replies, and delete the replies to entries before `oldest`."""
        rows = [
            (detector, number, request, request_digest, *reply, digest_of(request, request_digest, *reply))
            for number, request, request_digest, reply in replies
        ]
        self._database.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        self._database.execute("DELETE FROM answers WHERE detector = ? AND number < ?", (detector, oldest))

    def replies(self, detector: int, number: int) -> tuple[list[SavedReply], int]:
        """Return the replies to entries up to a number, oldest first, and how many are damaged."""
        sql = (
            "SELECT number, request, sent, status, content, digest FROM answers"
            " WHERE detector = ? AND number <= ? ORDER BY number"
        )
        with _storage_errors():
            rows = self._database.execute(sql, (detector, number)).fetchall()
        valid = [
            SavedReply(number, request, request_digest, Reply(status, content))
            for number, request, request_digest, status, content, digest in rows
            if digest == digest_of(request, request_digest, status, content)
        ]
        return valid, len(rows) - len(valid)

    def _snapshot_numbers(self, detector: int) -> list[int]:
        sql = "SELECT number FROM snapshots WHERE detector = ? ORDER BY number DESC"
        with _storage_errors():
            return [number for (number,) in self._database.execute(sql, (detector,))]


def _attach(copy: sqlite3.Connection, files: Sequence[AttachedFile]) -> None:
    """Put files into the copy of a database."""
    copy.execute("PRAGMA synchronous = OFF")  # a copy that is not complete is never used
    with copy:
        for file in files:
            rows = ((file.detector, position, chunk) for position, chunk in enumerate(file.chunks()))
            copy.executemany("INSERT INTO key_files VALUES (?, ?, ?)", rows)


def _configuration(name: str, text: Any) -> dict[str, Any]:
    if not isinstance(text, str):
        raise StorageError(f"The configuration of {name!r} is damaged: it is not text.")
    try:
        configuration = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StorageError(f"The configuration of {name!r} is damaged: {error}.") from None
    if not isinstance(configuration, dict):
        raise StorageError(f"The configuration of {name!r} is damaged: it is {configuration!r:.100}.")
    return configuration


def _versions(text: Any) -> Versions:
    """Return recorded versions, or {} (unknown) if they are damaged."""
    try:
        found = json.loads(text) if isinstance(text, str) else {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    is_valid = all(isinstance(part, str) and part.isprintable() for item in found.items() for part in item)
    return found if is_valid else {}


def _raise_unless_damaged(error: sqlite3.DatabaseError) -> None:
    """Raise StorageError if the file could not be read for a reason other than damage, for example a failing disk."""
    if isinstance(error, sqlite3.OperationalError):
        raise StorageError(f"The data could not be read: {error}.") from error


@contextmanager
def _storage_errors(path: Path | None = None) -> Iterator[None]:
    """Raise StorageError instead of the errors of SQLite and of the file system."""
    problem = "The data could not be stored or read" if path is None else f"{path} cannot be used"
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(f"{problem}: {error}.") from error
    except OSError as error:
        raise StorageError(f"{problem}: {error.strerror}.") from error
