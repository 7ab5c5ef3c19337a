"""The file of SQLite: how it is opened, what tables it has, and what can be read of a damaged one."""

import sqlite3
from contextlib import suppress
from pathlib import Path

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
    base = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1.0)
    base.execute("PRAGMA locking_mode = EXCLUSIVE")
    if base.execute("PRAGMA auto_vacuum").fetchone() != _INCREMENTAL:  # it is new; a full disk need not be written to
        base.execute("PRAGMA auto_vacuum = INCREMENTAL")
    base.executescript(_SETTINGS)
    n_read = None
    with suppress(sqlite3.OperationalError):  # the disk may be full
        n_read = int(base.execute("PRAGMA wal_checkpoint").fetchone()[1])
    base.executescript(_TABLES)
    return base, n_read


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
