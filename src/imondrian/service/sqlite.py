"""The file of SQLite: how it is opened, what tables it has, and what can be read of a damaged one."""

import errno
import os
import sqlite3
import stat
import struct
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


def open_database(path: Path) -> tuple[sqlite3.Connection, int | None]:
    """Open the file for one service alone; tell also how many frames of its log could be read, if that can be told."""
    make_private_file(path)
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise OSError(errno.EROFS, "the service must be able to write to it and its folder, but may only read")
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1.0)
    try:
        return database, _prepared(database)
    except sqlite3.OperationalError as error:
        database.close()
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        raise OSError(errno.EBUSY, f"its folder is in use by another service{_holder(path)}") from None


def _prepared(database: sqlite3.Connection) -> int | None:
    """Lock the file, make what it lacks, and return how many frames of its log could be read, if that can be told."""
    database.execute("PRAGMA locking_mode = EXCLUSIVE")
    if (
        database.execute("PRAGMA auto_vacuum").fetchone() != _INCREMENTAL
    ):  # it is new; a full disk need not be written to
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
    database.executescript(_SETTINGS)
    n_read = None
    with suppress(sqlite3.OperationalError):  # the disk may be full
        n_read = int(database.execute("PRAGMA wal_checkpoint").fetchone()[1])
    database.executescript(_TABLES)
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


def is_intact(database: sqlite3.Connection) -> bool:
    """Tell whether all pages of the file are such as they must be."""
    try:
        return database.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
    except sqlite3.DatabaseError:
        return False


def rescue(damaged: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    """Put what can be read of a damaged file into a new one, which takes its place; it is kept beside."""
    beside, aside = _beside(path), path.with_name(f"{path.name}.damaged")
    beside.unlink(missing_ok=True)
    database, _ = open_database(beside)
    database.execute("BEGIN")
    for table, order in _ORDERS.items():
        for way in ("ASC", "DESC"):
            _copy(damaged, database, table, f"{order.format(way)} {way}")
    database.execute("COMMIT")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # closing does so too, but is silent if the disk is full
    database.close()
    with suppress(sqlite3.DatabaseError):
        damaged.close()
    path.replace(aside)
    path.with_name(f"{path.name}-wal").unlink(missing_ok=True)
    beside.replace(path)
    return open_database(path)[0]


def finish_interrupted_rescue(path: Path) -> bool:
    """Complete a rescue that was interrupted in its last moment, and tell whether there was one."""
    if path.exists() or not _beside(path).exists():
        return False
    _beside(path).replace(path)
    return True


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.rescued")


def _copy(damaged: sqlite3.Connection, database: sqlite3.Connection, table: str, order: str) -> None:
    """Copy the rows of a table in an order, as far as they can be read."""
    with suppress(sqlite3.DatabaseError):
        for row in damaged.execute(f"SELECT * FROM {table} ORDER BY {order}"):  # noqa: S608 (names from above)
            marks = ", ".join("?" * len(row))
            database.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)  # noqa: S608


_HEADER = struct.Struct(">IIIIIIII")  # magic, version, page size, checkpoint, salts, checksums
_FRAME = struct.Struct(">IIIIII")  # page, pages after a commit, salts, checksums
_WORDS = {0x377F0682: "<", 0x377F0683: ">"}  # by the magic number: how checksums read words


class WriteAheadLog:
    """What a log says of itself, be it sound or not.

    Attributes
    ----------
    n_committed : int
        Number of the last frame, counted from 1, that ends a commit; 0 without any.
    is_sound : bool
        Whether the head of the file is; there may be no file at all.
    """

    def __init__(self, path: Path) -> None:
        content = path.read_bytes() if path.exists() else b""
        self.n_committed, self.is_sound = 0, True
        if len(content) <= _HEADER.size:
            return
        self.is_sound = _is_sound(content[: _HEADER.size])
        _, _, page_size, _, *salts, _, _ = _HEADER.unpack_from(content)
        size = _FRAME.size + page_size
        for i in range((len(content) - _HEADER.size) // size):
            _, n_pages, *rest = _FRAME.unpack_from(content, _HEADER.size + i * size)
            if n_pages and rest[:2] == salts:  # others are left over from before the last checkpoint
                self.n_committed = i + 1


def _is_sound(header: bytes) -> bool:
    """Tell whether the checksum of the header is right."""
    magic, *_, first, second = _HEADER.unpack(header)
    if magic not in _WORDS:
        return False
    words, ours, other = struct.unpack(f"{_WORDS[magic]}6I", header[:24]), 0, 0
    for even, odd in zip(words[::2], words[1::2], strict=True):
        ours = (ours + even + other) % 2**32
        other = (other + odd + ours) % 2**32
    return (ours, other) == (first, second)


_FOLDER, _FILE, _OTHERS = 0o700, 0o600, 0o077


def make_private_folder(path: Path) -> None:
    """Make a folder that only its owner may enter, unless it is there."""
    path.mkdir(mode=_FOLDER, parents=True, exist_ok=True)


def make_private_file(path: Path) -> None:
    """Make an empty file that only its owner may read and write; one that is there becomes such a file.

    A file that is there is not opened: closing it would release the locks that this process has on it.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _FILE))
    except FileExistsError:
        with suppress(PermissionError):  # the file of another user, who decides
            if is_open_to_others(path):
                path.chmod(_FILE)


def is_open_to_others(path: Path) -> bool:
    """Tell whether others than the owner may read, write or run a file."""
    return os.name == "posix" and bool(path.stat().st_mode & _OTHERS)


def mode_of(path: Path) -> str:
    """Write the mode of a file as `chmod` takes it."""
    return f"{stat.S_IMODE(path.stat().st_mode):04o}"
