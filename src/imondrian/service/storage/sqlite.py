"""Open the SQLite database file: create its tables, detect a damaged write-ahead log, rescue what is readable.

SQLite silently ignores a damaged end of the write-ahead log, so the log is inspected before the database is opened.
"""

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
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, detector INTEGER NOT NULL, time REAL NOT NULL, content TEXT NOT NULL,
    digest BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS outbox (
    receiver TEXT NOT NULL, event INTEGER NOT NULL, PRIMARY KEY (receiver, event)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS receivers (
    receiver TEXT PRIMARY KEY, sent INTEGER NOT NULL, given_up INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS announced (detector INTEGER PRIMARY KEY, number INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS announced_events (
    detector INTEGER PRIMARY KEY, entry INTEGER NOT NULL, n_events INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS open_incidents (
    detector INTEGER NOT NULL, kind TEXT NOT NULL, content TEXT NOT NULL, PRIMARY KEY (detector, kind)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS latest_rows (
    detector INTEGER NOT NULL, key TEXT NOT NULL, n_rows INTEGER NOT NULL, time REAL NOT NULL, score REAL NOT NULL,
    surprise REAL NOT NULL, is_anomaly INTEGER NOT NULL, content BLOB NOT NULL, digest BLOB NOT NULL,
    PRIMARY KEY (detector, key)
);
CREATE TABLE IF NOT EXISTS key_incidents (
    detector INTEGER NOT NULL, key TEXT NOT NULL, number INTEGER NOT NULL, content BLOB NOT NULL, digest BLOB NOT NULL,
    PRIMARY KEY (detector, key, number)
);
CREATE TABLE IF NOT EXISTS key_files (
    detector INTEGER NOT NULL, position INTEGER NOT NULL, content BLOB NOT NULL, PRIMARY KEY (detector, position)
);
CREATE TABLE IF NOT EXISTS removals (
    detector INTEGER PRIMARY KEY, time REAL NOT NULL, last_event INTEGER NOT NULL, n_closed INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS silences (
    detector INTEGER NOT NULL, number INTEGER NOT NULL, since REAL NOT NULL, opened REAL NOT NULL, closed REAL,
    PRIMARY KEY (detector, number)
) WITHOUT ROWID;
"""
_LOST_DETECTORS = """
INSERT INTO detectors (id, name, configuration, created)
SELECT detector, CAST(detector AS BLOB), x'', 0.0 FROM (
    SELECT detector FROM entries UNION SELECT detector FROM versions UNION SELECT detector FROM snapshots
    UNION SELECT detector FROM answers UNION SELECT detector FROM damaged UNION SELECT detector FROM latest_rows
    UNION SELECT detector FROM key_incidents
) WHERE typeof(detector) = 'integer' AND detector > 0 AND detector NOT IN (
    SELECT id FROM detectors UNION SELECT detector FROM removals
)
"""
_OPEN_INCIDENTS = """
INSERT OR IGNORE INTO open_incidents
SELECT detector, json_extract(content, '$.incident.kind'), json_extract(content, '$.incident') FROM events
WHERE json_valid(content) AND json_extract(content, '$.event') = 'opened' AND id IN (
    SELECT max(id) FROM events WHERE json_valid(content) GROUP BY detector, json_extract(content, '$.incident.kind')
)
"""  # for folders of a former version: an incident is open if the last event of its detector and kind is an opening
_LAST_IDS = "SELECT name, seq FROM sqlite_sequence WHERE name IN ('detectors', 'events')"
_INCREMENTAL_VACUUM, _LARGEST_ID = (2,), 2**53
_ORDERS = {  # for reading the rows of a damaged table, from both ends
    "detectors": "id",
    "entries": "detector {0}, number",
    "versions": "detector {0}, number",
    "snapshots": "detector {0}, number",
    "answers": "detector {0}, number",
    "damaged": "rowid",
    "events": "id",
    "outbox": "receiver {0}, event",
    "receivers": "receiver",
    "announced": "detector",
    "announced_events": "detector",
    "open_incidents": "detector {0}, kind",
    "silences": "detector {0}, number",
    "latest_rows": "detector {0}, key",
    "key_incidents": "detector {0}, key {0}, number",
    "key_files": "detector {0}, position",
    "removals": "detector",
}


_SQLITE = b"SQLite format 3\0"
_MAX_FILLED = 2**26  # bytes; a damaged header could describe a far longer file


def open_or_rescue(path: Path) -> tuple[sqlite3.Connection, list[str]]:
    """Open a database; if it is damaged, replace it by a copy of everything readable.

    Returns
    -------
    database : sqlite3.Connection
    problems : list of str
        What was damaged.
    """
    problems = []
    make_private_folder(path.parent)
    for existing in path.parent.glob(f"{path.name}*"):  # the database, its log, a damaged file
        make_private(existing)
    if finish_interrupted_rescue(path):
        problems.append(_rescue_message(path))
    _fill_to_length(path)
    log = WriteAheadLog(path.with_name(f"{path.name}-wal"))
    database, n_read = open_database(path)
    if not is_intact(database):
        database = rescue(database, path)
        problems.append(_rescue_message(path))
    if not log.is_valid or (n_read is not None and n_read < log.n_committed):
        problems.append("The end of the write-ahead log is damaged: the latest requests may be missing.")
    return database, problems


def _fill_to_length(path: Path) -> None:
    """Append zeros to a file that lacks its last pages, since SQLite would refuse to open it, even for a rescue.

    If the write-ahead log contains the missing pages, they replace the zeros.
    """
    if not path.exists():
        return
    with path.open("rb+") as file:
        header, n_bytes = file.read(100), path.stat().st_size
        if len(header) < 100 or not header.startswith(_SQLITE):
            return
        page_bytes = int.from_bytes(header[16:18], "big")
        page_bytes = 2**16 if page_bytes == 1 else page_bytes
        n_missing = int.from_bytes(header[28:32], "big") * page_bytes - n_bytes
        if 0 < n_missing <= max(n_bytes, _MAX_FILLED):
            file.truncate(n_bytes + n_missing)


def _rescue_message(path: Path) -> str:
    return f"{path} was damaged: everything readable was copied to a new file; the old one is {path}.damaged."


def open_database(path: Path) -> tuple[sqlite3.Connection, int | None]:
    """Open the file with an exclusive lock.

    Returns
    -------
    database : sqlite3.Connection
    n_read : int or None
        How many frames of the write-ahead log SQLite could read, if known.

    Raises
    ------
    OSError
        If the file or its folder is read-only, or in use by another service.
    """
    make_private_file(path)
    if not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
        raise OSError(errno.EROFS, "the service must be able to write to it and its folder, but can only read them")
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1.0)
    database.text_factory = _text_or_bytes
    try:
        return database, _prepare(database)
    except sqlite3.OperationalError as error:
        database.close()
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
            raise
        raise OSError(errno.EBUSY, f"its folder is in use by another service{_lock_holder(path)}") from None


def _text_or_bytes(content: bytes) -> str | bytes:
    """Return text, or its bytes if it is damaged: an error would make all other rows unreadable, too."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _prepare(database: sqlite3.Connection) -> int | None:
    """Lock the file, create missing tables, and return how many frames of its log could be read, if known."""
    database.execute("PRAGMA locking_mode = EXCLUSIVE")
    is_new = database.execute("PRAGMA auto_vacuum").fetchone() != _INCREMENTAL_VACUUM
    if is_new:  # an existing file is not changed: the disk may be full
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
    database.executescript(_SETTINGS)
    n_read = None
    with suppress(sqlite3.OperationalError):  # the disk may be full
        n_read = int(database.execute("PRAGMA wal_checkpoint").fetchone()[1])
    has_open_incidents = _has_table(database, "open_incidents")
    database.executescript(_TABLES)
    if not has_open_incidents:
        with suppress(sqlite3.DatabaseError):  # a damaged event may not be valid JSON
            database.execute(_OPEN_INCIDENTS)
    return n_read


def _has_table(database: sqlite3.Connection, name: str) -> bool:
    sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
    return database.execute(sql, (name,)).fetchone() is not None


def free_pages(database: sqlite3.Connection, max_pages: int) -> int:
    """Return unused pages to the file system, and return their number.

    As many unused pages as used ones are kept, since the next snapshot needs them. If the file was created without
    incremental vacuum, nothing is returned to the file system.
    """
    n_unused, n_pages = (_pragma(database, name) for name in ("freelist_count", "page_count"))
    for _ in range(min(2 * n_unused - n_pages, max_pages)):
        database.execute("PRAGMA incremental_vacuum(1)")  # with a larger number, Python would still free only one page
    return n_unused - _pragma(database, "freelist_count")


def _pragma(database: sqlite3.Connection, name: str) -> int:
    return int(database.execute(f"PRAGMA {name}").fetchone()[0])


def _lock_holder(path: Path) -> str:
    """Return the process that has locked the file, as text, if the operating system reports it."""
    with suppress(OSError, ValueError):
        inode = f":{path.stat().st_ino}"
        for line in Path("/proc/locks").read_text().splitlines():
            _, _, _, _, process, file, *_ = line.split()
            if file.endswith(inode):
                return f" (process {process})"
    return ""


def is_intact(database: sqlite3.Connection) -> bool:
    """Return True if all pages of the file are valid."""
    try:
        return database.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
    except sqlite3.DatabaseError:
        return False


def rescue(damaged: sqlite3.Connection, path: Path) -> sqlite3.Connection:
    """Replace a damaged file by a new one with everything readable; keep the damaged file as `.damaged`.

    A detector whose row is unreadable gets a row without a name, so that it is set aside with its data. Without that
    row, the next new detector could get its id, and with it the old data.
    """
    copy, damaged_path = _copy_path(path), path.with_name(f"{path.name}.damaged")
    copy.unlink(missing_ok=True)
    database, _ = open_database(copy)
    database.execute("BEGIN")
    for table, order in _ORDERS.items():
        for direction in ("ASC", "DESC"):
            _copy_rows(damaged, database, table, f"{order.format(direction)} {direction}")
    database.execute(_LOST_DETECTORS)
    _copy_last_ids(damaged, database)
    database.execute("COMMIT")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # like closing, but reports a full disk
    database.close()
    with suppress(sqlite3.DatabaseError):
        damaged.close()
    path.replace(damaged_path)
    _use_copy(path)
    return open_database(path)[0]


def finish_interrupted_rescue(path: Path) -> bool:
    """Finish a rescue that was interrupted before its last step; return True if there was one."""
    if path.exists() or not _copy_path(path).exists():
        return False
    _use_copy(path)
    return True


def _use_copy(path: Path) -> None:
    """Use the rescued copy instead of the damaged file, which has been renamed; its log would damage the copy."""
    path.with_name(f"{path.name}-wal").unlink(missing_ok=True)
    _copy_path(path).replace(path)


def _copy_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.rescued")


def _copy_rows(damaged: sqlite3.Connection, database: sqlite3.Connection, table: str, order: str) -> None:
    """Copy the rows of a table in the given order, until one cannot be read."""
    with suppress(sqlite3.DatabaseError):
        for row in damaged.execute(f"SELECT * FROM {table} ORDER BY {order}"):  # noqa: S608 (names from above)
            marks = ", ".join("?" * len(row))
            database.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)  # noqa: S608


def _copy_last_ids(damaged: sqlite3.Connection, database: sqlite3.Connection) -> None:
    """Copy the last ids of detectors and events, so that ids of deleted detectors and events are not used again."""
    with suppress(sqlite3.DatabaseError):
        copied = dict(database.execute(_LAST_IDS).fetchall())
        for name, last in damaged.execute(_LAST_IDS).fetchall():
            if isinstance(last, int) and copied.get(name, 0) < last < _LARGEST_ID:
                database.execute("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
                database.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (name, last))


_HEADER = struct.Struct(">IIIIIIII")  # magic number, version, page size, checkpoint, salts, checksums
_FRAME = struct.Struct(">IIIIII")  # page, number of pages after a commit, salts, checksums
_BYTE_ORDERS = {0x377F0682: "<", 0x377F0683: ">"}  # of the words in checksums, by magic number


class WriteAheadLog:
    """The write-ahead log of a database, read without SQLite.

    The log contains what was committed since the last checkpoint, as frames of one page each, with checksums. SQLite
    reads up to the last commit before the first invalid frame. If commits follow that frame, then more was lost than a
    power cut can explain. (File layout: https://www.sqlite.org/fileformat2.html#walformat.)

    Attributes
    ----------
    n_committed : int
        Number of the last frame, from 1, that ends a commit; 0 if there is none.
    is_valid : bool
        Whether the header of the file is valid, or the file does not exist or contains no more than a header.
    """

    def __init__(self, path: Path) -> None:
        content = path.read_bytes() if path.exists() else b""
        self.n_committed, self.is_valid = 0, True
        if len(content) <= _HEADER.size:
            return
        self.is_valid = _has_valid_checksum(content[: _HEADER.size])
        _, _, page_size, _, *salts, _, _ = _HEADER.unpack_from(content)
        size = _FRAME.size + page_size
        for i in range((len(content) - _HEADER.size) // size):
            _, n_pages, *rest = _FRAME.unpack_from(content, _HEADER.size + i * size)
            if n_pages and rest[:2] == salts:  # other frames are left over from before the last checkpoint
                self.n_committed = i + 1


def _has_valid_checksum(header: bytes) -> bool:
    """Return True if the checksum of the header is correct."""
    magic, *_, first, second = _HEADER.unpack(header)
    if magic not in _BYTE_ORDERS:
        return False
    words, sum_1, sum_2 = struct.unpack(f"{_BYTE_ORDERS[magic]}6I", header[:24]), 0, 0
    for even, odd in zip(words[::2], words[1::2], strict=True):
        sum_1 = (sum_1 + even + sum_2) % 2**32
        sum_2 = (sum_2 + odd + sum_1) % 2**32
    return (sum_1, sum_2) == (first, second)


_FOLDER_MODE, _FILE_MODE, _OTHERS = 0o700, 0o600, 0o077


def make_private_folder(path: Path) -> None:
    """Create a folder that only its owner can access, unless it exists."""
    path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)


def make_private_file(path: Path) -> None:
    """Create an empty file that only its owner can access, or change the mode of an existing file.

    An existing file is not opened: closing it would release the locks that this process holds on it.
    """
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _FILE_MODE))
    except FileExistsError:
        make_private(path)


def make_private(path: Path) -> None:
    """Change the mode of a file so that only its owner can access it; ignore folders."""
    with suppress(PermissionError, FileNotFoundError):  # it belongs to another user, or was just deleted
        if path.is_file() and is_open_to_others(path):
            path.chmod(_FILE_MODE)


def is_open_to_others(path: Path) -> bool:
    """Return True if users other than the owner can read, write or execute a file."""
    return os.name == "posix" and bool(path.stat().st_mode & _OTHERS)


def mode_of(path: Path) -> str:
    """Return the mode of a file in the form that `chmod` accepts."""
    return f"{stat.S_IMODE(path.stat().st_mode):04o}"
