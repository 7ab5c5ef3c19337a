"""The store of a fleet: an SQLite file with the states of its keys.

`saved` contains the fleet as of its last save. Keys that leave memory between two saves are *spilled* to a second file,
which is not synced to disk and is deleted when the store is opened or closed: after a crash, the store contains the
last save, no more and no less.
"""

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from imondrian.base.errors import DamagedFileError, InvalidInputError, StoreError
from imondrian.fleet.common_state import CommonState, decoded_header, encoded_header

_APPLICATION_ID = 0x494D464C  # "IMFL"
_MAX_ENTRY = 2**30  # bytes of one stored value
_SPILL = "-spill"
_TABLES = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL)",
    "CREATE TABLE saved (key BLOB PRIMARY KEY, state BLOB NOT NULL)",
)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
MAGIC = b"SQLite format 3\x00"  # the first bytes of a store


def encoded_key(key: str | int) -> bytes:
    """Return a key as bytes; different keys have different bytes."""
    return b"i%d" % key if isinstance(key, int) else b"t" + key.encode("utf-8", "surrogatepass")


def decoded_key(content: bytes) -> str | int:
    """Return the key that `encoded_key` has encoded; raise ValueError if there is none."""
    if content[:1] == b"i":
        number = int(content[1:21])
        if encoded_key(number) == content:
            return number
    if content[:1] != b"t":
        raise ValueError("a key of the store is damaged.")
    return content[1:].decode("utf-8", "surrogatepass")


class KeyStore:
    """An open store. Nobody else can open it meanwhile, and a process that is forked cannot use it.

    Parameters
    ----------
    path : str or path
        The file; it is created if there is none.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.fspath(path)).absolute()
        self._spill_path = self.path.with_name(self.path.name + _SPILL)
        self._removed: set[bytes] = set()  # keys that have been forgotten since the last save
        self._process = os.getpid()
        with self._errors():
            self._base = sqlite3.connect(self.path, timeout=1.0, isolation_level=None, check_same_thread=False)
            try:
                self._open()
            except BaseException:
                self._base.close()
                raise

    def _open(self) -> None:
        self._base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_ENTRY)
        self._base.execute("PRAGMA trusted_schema = OFF")
        self._base.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._base.execute("BEGIN EXCLUSIVE")  # held until the store is closed
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
        self._spill_path.unlink(missing_ok=True)  # now that no other process uses it
        self._base.execute("ATTACH DATABASE ? AS spill", (str(self._spill_path),))
        self._base.execute("PRAGMA spill.journal_mode = MEMORY")
        self._base.execute("PRAGMA spill.synchronous = OFF")
        self._base.execute("CREATE TABLE spill.spilled (key BLOB PRIMARY KEY, state BLOB NOT NULL)")

    def close(self) -> None:
        """Close the store; what was not saved is lost."""
        if self._process == os.getpid():
            self._base.close()
            self._spill_path.unlink(missing_ok=True)

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
        except OSError as error:
            raise StoreError(f"{self.path}: the store cannot be used: {error}.") from None

    def common_state(self) -> CommonState | None:
        """Return what was saved besides the keys; None if nothing was saved."""
        with self._errors():
            values = dict(self._base.execute("SELECT name, value FROM facts").fetchall())
        if not values:
            return None
        try:
            return CommonState(decoded_header(values["header"]), _checked_bytes(values["common"]))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DamagedFileError(f"{self.path}: {str(error)[:300]}") from None

    def keys(self) -> list[str | int]:
        """Return all keys of the store."""
        with self._errors():
            rows = self._base.execute("SELECT key FROM saved UNION SELECT key FROM spill.spilled").fetchall()
        try:
            return [decoded_key(key) for (key,) in rows if key not in self._removed]
        except (ValueError, TypeError) as error:
            raise DamagedFileError(f"{self.path}: {str(error)[:300]}") from None

    def read(self, key: str | int) -> bytes | None:
        """Return the latest state of a key; None if the store does not have it."""
        found = self._select("state", key)
        try:
            return None if found is None else _checked_bytes(found)
        except TypeError as error:
            raise DamagedFileError(f"{self.path}: the key {key!r:.100} is damaged: {error}") from None

    def __contains__(self, key: str | int) -> bool:
        return self._select("1", key) is not None

    def _select(self, what: str, key: str | int) -> Any:
        """Return an expression for the latest state of a key; None if the store does not have it."""
        encoded = encoded_key(key)
        if encoded in self._removed:
            return None
        with self._errors():
            for table in ("spill.spilled", "saved"):
                row = self._base.execute(f"SELECT {what} FROM {table} WHERE key = ?", (encoded,)).fetchone()  # noqa: S608
                if row is not None:
                    return row[0]
        return None

    def spill(self, states: Iterable[tuple[str | int, bytes]]) -> None:
        """Store the states of keys that leave memory."""
        rows = [(encoded_key(key), state) for key, state in states]
        with self._errors(), self._transaction():
            self._base.executemany("INSERT OR REPLACE INTO spill.spilled VALUES (?, ?)", rows)
        self._removed.difference_update(key for key, _ in rows)

    def remove(self, key: str | int) -> None:
        """Forget a key; it disappears from `saved` with the next save."""
        self._removed.add(encoded_key(key))

    def save(self, common: CommonState, states: Iterable[tuple[str | int, bytes]]) -> None:
        """Save the fleet: these states, those that were spilled, and the others as of the last save."""
        values = [("header", encoded_header(common)), ("common", common.forest)]
        removed = [(key,) for key in self._removed]
        with self._errors(), self._transaction():
            self._base.executemany("DELETE FROM spill.spilled WHERE key = ?", removed)
        with self._errors(), self._transaction():
            self._base.executemany("DELETE FROM saved WHERE key = ?", removed)
            self._base.execute("INSERT OR REPLACE INTO saved SELECT key, state FROM spill.spilled")
            rows = ((encoded_key(key), state) for key, state in states)
            self._base.executemany("INSERT OR REPLACE INTO saved VALUES (?, ?)", rows)
            self._base.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", values)
        self._removed.clear()
        with self._errors(), self._transaction():
            self._base.execute("DELETE FROM spill.spilled")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._roll_back()  # a transaction that was interrupted twice
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


def _checked_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"it must be bytes, but is {value!r:.50}.")
    return value


def checked_key(key: Any) -> str | int:
    """Return a key as text or an integer of Python; raise InvalidInputError if it is something else."""
    if isinstance(key, str):
        return str(key)
    if isinstance(key, (bool, np.bool_)) or not hasattr(key, "__index__"):
        raise InvalidInputError(f"A key must be text or an integer, but is {key!r:.200}.")
    number = int(key.__index__())
    if number.bit_length() > 63:
        raise InvalidInputError(f"A key must be text or an integer of at most 63 bits, but is {key!r:.200}.")
    return number
