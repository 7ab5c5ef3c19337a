"""The file of SQLite: how it is opened, what tables it has, and what can be read of a damaged one."""

import errno
import os
import sqlite3
from contextlib import suppress
from pathlib import Path

from imondrian.service.privacy import make_private_file

_SETTINGS = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
PRAGMA journal_size_limit = 67108864;
"""
_TABLES = """
CREATE TABLE IF NOT EXISTS detectors (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, configuration TEXT NOT NULL, created REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS entries (
    detector INTEGER NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL, content BLOB NOT NULL, request TEXT,
    time REAL NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (detector, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS versions (
    detector INTEGER NOT NULL, number INTEGER NOT NULL, content TEXT NOT NULL, PRIMARY KEY (detector, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS snapshots (
    detector INTEGER NOT NULL, number INTEGER NOT NULL, content BLOB NOT NULL, history BLOB NOT NULL,
    digest BLOB NOT NULL, PRIMARY KEY (detector, number)
);
CREATE TABLE IF NOT EXISTS answers (
    detector INTEGER NOT NULL, number INTEGER NOT NULL, request TEXT NOT NULL, sent BLOB NOT NULL,
    status INTEGER NOT NULL, content BLOB NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (detector, number)
);
CREATE TABLE IF NOT EXISTS damaged (
    detector INTEGER NOT NULL, number INTEGER NOT NULL, kind TEXT, content BLOB, request TEXT, time REAL, digest BLOB
);
"""
_INCREMENTAL = (2,)
_ORDERS = {  # by which the rows of a table are read, from both ends
    "detectors": "id",
    "entries": "detector {0}, number",
    "versions": "detector {0}, number",
    "snapshots": "detector {0}, number",
    "answers": "detector {0}, number",
    "damaged": "rowid",
}


def opened(path: Path) -> tuple[sqlite3.Connection, int | None]:
    """Open the file for one service alone; tell also how many frames of its log could be read, if that can be told."""
    make_private_file(path)
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise OSError(errno.EROFS, "the service must be able to write to it and its folder, but may only read")
    base = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1.0)
    try:
        return base, _prepared(base)
    except sqlite3.OperationalError as error:
        base.close()
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        raise OSError(errno.EBUSY, f"its folder is in use by another service{_holder(path)}") from None


def _prepared(base: sqlite3.Connection) -> int | None:
    """Lock the file, make what it lacks, and return how many frames of its log could be read, if that can be told."""
    base.execute("PRAGMA locking_mode = EXCLUSIVE")
    if base.execute("PRAGMA auto_vacuum").fetchone() != _INCREMENTAL:  # it is new; a full disk need not be written to
        base.execute("PRAGMA auto_vacuum = INCREMENTAL")
    base.executescript(_SETTINGS)
    n_read = None
    with suppress(sqlite3.OperationalError):  # the disk may be full
        n_read = int(base.execute("PRAGMA wal_checkpoint").fetchone()[1])
    base.executescript(_TABLES)
    return n_read


def _holder(path: Path) -> str:
    """Name the process that has the file locked, where the system tells it."""
    with suppress(OSError, ValueError):
        inode = f":{path.stat().st_ino}"
        for line in Path("/proc/locks").read_text().splitlines():
            _, _, _, _, process, file, *_ = line.split()
            if file.endswith(inode):
                return f" (process {process})"
    return ""


def is_whole(base: sqlite3.Connection) -> bool:
    """Tell whether all pages of the file are such as they must be."""
    try:
        return base.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
    except sqlite3.DatabaseError:
        return False


def rescued(damaged: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    """Put what can be read of a damaged file into a new one, which takes its place; it is kept beside."""
    beside, aside = _beside(path), path.with_name(f"{path.name}.damaged")
    beside.unlink(missing_ok=True)
    base, _ = opened(beside)
    base.execute("BEGIN")
    for table, order in _ORDERS.items():
        for way in ("ASC", "DESC"):
            _copy(damaged, base, table, f"{order.format(way)} {way}")
    base.execute("COMMIT")
    base.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # closing does so too, but is silent if the disk is full
    base.close()
    with suppress(sqlite3.DatabaseError):
        damaged.close()
    path.replace(aside)
    path.with_name(f"{path.name}-wal").unlink(missing_ok=True)
    beside.replace(path)
    return opened(path)[0]


def is_rescue_completed(path: Path) -> bool:
    """Complete a rescue that was interrupted in its last moment, and tell whether there was one."""
    if path.exists() or not _beside(path).exists():
        return False
    _beside(path).replace(path)
    return True


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.rescued")


def _copy(damaged: sqlite3.Connection, base: sqlite3.Connection, table: str, order: str) -> None:
    """Copy the rows of a table in an order, as far as they can be read."""
    with suppress(sqlite3.DatabaseError):
        for row in damaged.execute(f"SELECT * FROM {table} ORDER BY {order}"):  # noqa: S608 (names from above)
            marks = ", ".join("?" * len(row))
            base.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)  # noqa: S608
