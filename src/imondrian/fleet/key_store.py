"""The store of a fleet: an SQLite file with the states of its keys.

The tables `saved` and `facts` contain the fleet as of its last save. Keys that leave memory between two saves are
*spilled*: written to the table `spilled` of a second file. That file is not synced to disk, and is deleted when the
store is opened or closed. So after a crash, the store contains exactly the last save.
"""

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from imondrian.base.errors import DamagedFileError, StoreError
from imondrian.base.files import real_path, replacement
from imondrian.fleet.keys import Key, decoded_key, encoded_key

_APPLICATION_ID = 0x494D464C  # "IMFL"
_MAX_ENTRY = 2**30  # bytes of one stored value
_SPILL, _JOURNAL = "-spill", "-journal"  # appended to the name of the store for the files beside it
_MAX_NAME_BYTES = 255  # of a file, on all common file systems
_TABLES = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL)",
    "CREATE TABLE saved (key BLOB PRIMARY KEY, state BLOB NOT NULL)",
)
_SPILL_TABLE = "CREATE TABLE IF NOT EXISTS spill.spilled (key BLOB PRIMARY KEY, state BLOB NOT NULL)"
_PAGE_BYTES = 4096
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_MAGIC = b"SQLite format 3\x00"  # the first bytes of a store
_OPEN_FILES: set[tuple[int, int]] = set()  # device and inode of the files that stores of this process have locked


def is_fleet_file(path: str | os.PathLike[str]) -> bool:
    """Return True if a file begins like the store of a fleet.

    A store in use by this process is not opened: closing it again would release the lock.
    """
    path = Path(path)
    if _identity(path) in _OPEN_FILES:
        return True
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


class CommonBytes(NamedTuple):
    """The state of a fleet besides its keys, as it is stored; `common_state.py` reads and writes it."""

    header: bytes
    forest: bytes  # the common forest


class KeyStore:
    """A store. Call `open` before other methods. While a store is open, no other process or object can open it.

    A forked process cannot use it.

    Parameters
    ----------
    path : str or path
        The file; it is created if there is none.

    Attributes
    ----------
    unused_bytes : int
        Free space inside the second file, which the next keys that leave memory will use.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = real_path(path)
        self._spill_path = self.path.with_name(self.path.name + _SPILL)
        self._removed: set[bytes] = set()  # keys forgotten since the last save, encoded
        self._process, self._is_locked = os.getpid(), False
        self._has_spill_table, self.unused_bytes = False, 0
        self._file = (0, 0)  # device and inode
        self._base = sqlite3.connect(":memory:")  # until the file is opened

    def open(self) -> None:
        """Open the file. If that fails or is interrupted, the caller must close the store."""
        _check_name(self.path)
        with self._errors():
            self._base.close()
            self._base = sqlite3.connect(self.path, timeout=1.0, isolation_level=None, check_same_thread=False)
            self._prepare()

    def _prepare(self) -> None:
        """Lock the file, check or create its tables, and attach the file for keys that leave memory."""
        self._base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_ENTRY)
        self._base.execute("PRAGMA trusted_schema = OFF")
        self._base.execute("PRAGMA locking_mode = EXCLUSIVE")  # the lock of the next transaction is kept until close
        self._base.execute("BEGIN EXCLUSIVE")
        is_new = not self._base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if is_new:
            self._base.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            for statement in _TABLES:
                self._base.execute(statement)
        elif self._base.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
            raise DamagedFileError(f"{self.path}: this is not the store of a fleet.")
        schema = self._base.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
        if schema != [(statement,) for statement in _TABLES]:
            raise DamagedFileError(f"{self.path}: the tables are not those of a fleet.")
        self._base.execute("COMMIT")
        self._is_locked = True  # so no other process uses the spill file
        self._file = _identity(self.path)
        _OPEN_FILES.add(self._file)
        self._spill_path.unlink(missing_ok=True)
        self._base.execute("ATTACH DATABASE ? AS spill", (str(self._spill_path),))
        self._base.execute("PRAGMA spill.journal_mode = MEMORY")
        self._base.execute("PRAGMA spill.synchronous = OFF")

    def close(self) -> None:
        """Close the store; changes that were not saved are lost."""
        if self._process == os.getpid():
            self._base.close()
            if self._is_locked:
                self._is_locked = False
                _OPEN_FILES.discard(self._file)
                self._spill_path.unlink(missing_ok=True)

    def __del__(self) -> None:
        """Close the store when nothing refers to it.

        Its connection is part of a reference cycle, and would stay open until the garbage collector finds the cycle.
        """
        with suppress(Exception):  # the interpreter may be ending
            self.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Convert errors of SQLite to errors that name the store."""
        if self._process != os.getpid():
            raise StoreError(f"{self.path}: the store was opened by another process, before this one was forked.")
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _DAMAGED:
                raise DamagedFileError(f"{self.path}: the store is damaged: {error}.") from None
            reason = "another process or fleet is using it" if code == sqlite3.SQLITE_BUSY else str(error)
            raise StoreError(f"{self.path}: the store cannot be used: {reason}.") from None
        except UnicodeDecodeError as error:  # damaged text, possibly in a message of SQLite
            raise DamagedFileError(f"{self.path}: the store is damaged: {error}.") from None
        except OSError as error:
            raise StoreError(f"{self.path}: the store cannot be used: {error}.") from None

    def common_state(self) -> CommonBytes | None:
        """Return the saved state of the fleet besides its keys; None if nothing was saved."""
        with self._errors():
            values = dict(self._base.execute("SELECT name, value FROM facts").fetchall())
        if not values:
            return None
        try:
            return CommonBytes(_checked_bytes(values["header"]), _checked_bytes(values["common"]))
        except (TypeError, KeyError) as error:
            raise DamagedFileError(f"{self.path}: the state of the fleet is damaged: {str(error)[:300]}") from None

    def keys(self) -> list[Key]:
        """Return all keys of the store."""
        with self._errors():
            sql = " UNION ".join(f"SELECT key FROM {table}" for table in self._tables)  # noqa: S608 (names from below)
            rows = self._base.execute(sql).fetchall()
        try:
            return [decoded_key(key) for (key,) in rows if key not in self._removed]
        except (ValueError, TypeError) as error:
            raise DamagedFileError(f"{self.path}: {str(error)[:300]}") from None

    def read(self, key: Key) -> bytes | None:
        """Return the latest state of a key; None if the store does not have it."""
        found = self._select("state", key)
        try:
            return None if found is None else _checked_bytes(found)
        except TypeError as error:
            raise DamagedFileError(f"{self.path}: the key {key!r:.100} is damaged: {error}") from None

    def __contains__(self, key: Key) -> bool:
        return self._select("1", key) is not None

    def _select(self, what: str, key: Key) -> Any:
        """Return a column, or an SQL expression, of the latest row of a key; None if the store does not have it."""
        encoded = encoded_key(key)
        if encoded in self._removed:
            return None
        with self._errors():
            for table in self._tables:
                row = self._base.execute(f"SELECT {what} FROM {table} WHERE key = ?", (encoded,)).fetchone()  # noqa: S608
                if row is not None:
                    return row[0]
        return None

    @property
    def _tables(self) -> tuple[str, ...]:
        """The tables that have states of keys, the latest ones first."""
        return ("spill.spilled", "saved") if self._has_spill_table else ("saved",)

    def spill(self, states: Iterable[tuple[Key, bytes]]) -> None:
        """Store the states of keys that leave memory."""
        rows = [(encoded_key(key), state) for key, state in states]
        with self._errors(), self._transaction():
            self._base.execute(_SPILL_TABLE)  # not in `open`, so that a store can be opened on a full disk
        self._has_spill_table = True  # before there are rows: an interruption must not hide them
        with self._errors(), self._transaction():
            self._base.executemany("INSERT OR REPLACE INTO spill.spilled VALUES (?, ?)", rows)
        self._count_unused_bytes()
        self._removed.difference_update(key for key, _ in rows)

    def remove(self, key: Key) -> None:
        """Forget a key; the next save deletes it from `saved`."""
        self._removed.add(encoded_key(key))

    def save(self, common: CommonBytes, states: Iterable[tuple[Key, bytes]]) -> None:
        """Save the fleet: the common state, these states, and the spilled states. Other keys must not have changed."""
        values = [("header", common.header), ("common", common.forest)]
        removed = [(key,) for key in self._removed]
        if self._has_spill_table:
            with self._errors(), self._transaction():
                self._base.executemany("DELETE FROM spill.spilled WHERE key = ?", removed)
        with self._errors(), self._transaction():
            self._base.executemany("DELETE FROM saved WHERE key = ?", removed)
            if self._has_spill_table:
                self._base.execute("INSERT OR REPLACE INTO saved SELECT key, state FROM spill.spilled")
            rows = ((encoded_key(key), state) for key, state in states)
            self._base.executemany("INSERT OR REPLACE INTO saved VALUES (?, ?)", rows)
            self._base.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", values)
        self._removed.clear()
        if self._has_spill_table:
            with self._errors(), self._transaction():
                self._base.execute("DELETE FROM spill.spilled")
            self._count_unused_bytes()

    def _count_unused_bytes(self) -> None:
        with self._errors():
            (n_pages,) = self._base.execute("PRAGMA spill.freelist_count").fetchone()
            (page_size,) = self._base.execute("PRAGMA spill.page_size").fetchone()
        self.unused_bytes = n_pages * page_size

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._roll_back()  # if the rollback of an interrupted transaction was interrupted, too
        try:
            self._base.execute("BEGIN IMMEDIATE")
            yield
            self._base.execute("COMMIT")
        except BaseException:
            self._roll_back()
            raise

    def _roll_back(self) -> None:
        if self._base.in_transaction:
            self._base.execute("ROLLBACK")


def stored_bytes(n_bytes: int) -> int:
    """Return the most disk space that a state of n_bytes needs.

    SQLite stores short states together in a page, and most of a long state in pages that no other state uses.
    """
    return (n_bytes // (_PAGE_BYTES - 4) + 2) * _PAGE_BYTES


def save_copy(path: str | os.PathLike[str], common: CommonBytes, states: Iterable[tuple[Key, bytes]]) -> None:
    """Write a fleet to a new file, and rename it to `path` when it is complete.

    Raises
    ------
    StoreError
        If the file to be replaced is a store in use, or if the name is so long that the file could not be opened.
    """
    path = real_path(path)
    _check_name(path)
    with replacement(path) as temporary:
        copy = KeyStore(temporary)
        try:
            copy.open()
            copy.save(common, states)
        finally:
            copy.close()
        if path.exists():
            _check_is_not_in_use(path)


def _check_name(path: Path) -> None:
    """Raise StoreError if a file name is so long that the names of the files beside it would be too long."""
    n_bytes, limit = len(os.fsencode(path.name)), _MAX_NAME_BYTES - len(_JOURNAL)
    if n_bytes > limit:
        raise StoreError(f"The file name of a fleet may have at most {limit} bytes, but {path.name!r} has {n_bytes}.")


def _check_is_not_in_use(path: Path) -> None:
    """Raise StoreError if a file is a store in use; if an interrupted save has left a journal, delete it."""
    store = KeyStore(path)
    with _CHECKING:
        try:
            store.open()
        except DamagedFileError:  # a damaged store or another kind of file, which will be replaced
            path.with_name(path.name + _JOURNAL).unlink(missing_ok=True)
        finally:
            store.close()


def _new_lock_after_fork() -> None:
    """Replace the lock in a forked process: it may have been held by a thread that does not exist there."""
    global _CHECKING  # noqa: PLW0603
    _CHECKING = threading.Lock()


# several fleets can be saved to one file: without this, the check of one could find the file locked by that of another
_CHECKING = threading.Lock()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_new_lock_after_fork)


def _checked_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"it must be bytes, but is {value!r:.50}.")
    return value
