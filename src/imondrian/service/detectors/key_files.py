"""The files of detectors with a key: one SQLite file each, beside the database, with the states of the keys.

A file is the store of a `Fleet`. It is complete whenever it exists: it is created under another name and renamed. A
backup of the service is a single file that contains these files.
"""

import logging
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from imondrian.base.errors import DamagedFileError, ImondrianError
from imondrian.fleet.fleet import Fleet
from imondrian.service.errors import ConflictError, StorageError
from imondrian.service.limits import DESCRIPTORS_PER_KEY_FILE, Limits
from imondrian.service.storage.sqlite import make_private, make_private_file
from imondrian.service.storage.store import FILE, AttachedFile, Store

_LOG = logging.getLogger("imondrian.service")
_NAME = re.compile(r"\.?keys-([0-9]+)\.db(\.part|\.[0-9a-f]{16})?(-spill|-journal)?")
_CHUNK_BYTES = 2**20


class KeyFiles:
    """The files of all detectors with a key in a folder.

    Parameters
    ----------
    folder : Path

    Attributes
    ----------
    lock : threading.Lock
        Held while a file is written, closed or deleted, and while all of them are copied.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.lock = folder, threading.Lock()

    def path(self, detector: int) -> Path:
        """Return the path of the file of a detector."""
        return self.folder / f"keys-{detector}.db"

    def create(self, detector: int, fleet: Fleet) -> None:
        """Create the file of a detector from a fleet without a store, which has no keys yet."""
        with self.lock:
            fleet.save(self.path(detector))
            make_private(self.path(detector))

    def open_fleet(self, detector: int, max_bytes: int) -> Fleet:
        """Open the fleet of a detector, and make its second file, for keys that leave memory, private."""
        path = self.path(detector)
        fleet = Fleet.load(path, max_bytes=max_bytes)
        make_private(path.with_name(f"{path.name}-spill"))
        return fleet

    def restore(self, detector: int, chunks: Iterable[bytes]) -> None:
        """Create the file of a detector from a copy, or replace it with the copy."""
        part = self.path(detector).with_name(f"{self.path(detector).name}.part")
        part.unlink(missing_ok=True)
        make_private_file(part)
        try:
            with part.open("wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        for suffix in ("-journal", "-spill"):  # left by an earlier file
            self.path(detector).with_name(f"{self.path(detector).name}{suffix}").unlink(missing_ok=True)
        part.replace(self.path(detector))

    def close(self, file: "KeyFile") -> None:
        """Close the open file of a detector, once no copy is being made."""
        with self.lock:
            file.close()

    def remove(self, detector: int, *, is_waiting: bool = True) -> None:
        """Delete the file of a detector, if there is one; if that fails, log it: the next start deletes the file.

        With `is_waiting=False`, the file is left to the next start if another thread holds the lock.
        """
        if self.lock.acquire(blocking=is_waiting):
            try:
                self.path(detector).unlink(missing_ok=True)
            except OSError as error:
                _LOG.warning("%s belongs to no detector, but cannot be deleted: %s.", self.path(detector), error)
            finally:
                self.lock.release()

    def remove_others(self, detectors: Iterable[int], last_id: int, *, is_damaged: bool) -> list[str]:
        """Delete files that belong to none of these detectors, left by interrupted removals.

        A file with a higher id than `last_id`, the highest of any detector that the database has ever had, belongs to
        another database, which was lost or replaced: the file is renamed, not deleted. If the database was damaged,
        `detectors` may be incomplete: then all these files are renamed.

        Returns
        -------
        list of str
            A report on renamed files, if there are any.
        """
        known, n_renamed = set(detectors), 0
        for path in [*self.folder.glob("keys-*"), *self.folder.glob(".keys-*")]:
            match = _NAME.fullmatch(path.name)
            if match is None or (int(match[1]) in known and match[2] is None):
                continue  # a journal of SQLite belongs to its file: it restores the state before an interrupted save
            is_kept = match[2] is None and (is_damaged or int(match[1]) > last_id)
            with suppress(OSError):
                path.replace(_free_name(path)) if is_kept else path.unlink()
                n_renamed += is_kept
                _LOG.info("%s belongs to no detector.", path)
        if not n_renamed:
            return []
        report = (
            f"{n_renamed} files of keys belong to no detector in {self.folder / FILE}, which may have been lost or"
            " replaced: they were renamed to *.damaged (or *.damaged-2, ...)."
        )
        return [report]


def _free_name(path: Path) -> Path:
    """Return the first of *.damaged, *.damaged-2, ... that does not exist."""
    damaged, number = path.with_name(f"{path.name}.damaged"), 2
    while damaged.exists():
        damaged, number = path.with_name(f"{path.name}.damaged-{number}"), number + 1
    return damaged


def check_number_of_keyed(n_open: int, limits: Limits) -> None:
    """Raise ConflictError if no further detector with a key can be opened: there are not enough file descriptors."""
    if n_open >= limits.keyed_detectors:
        raise ConflictError(
            f"At most {limits.keyed_detectors} detectors with a key can be open at the same time, since each needs"
            f" {DESCRIPTORS_PER_KEY_FILE} file descriptors: a higher hard limit (ulimit -Hn) allows more."
        )


class KeyFile:
    """An open file of a detector, for copies.

    Closing a descriptor of a file releases the locks that SQLite holds on the file in this process. So the file is not
    opened for each copy: it is opened before the fleet that uses it, and closed after the fleet.

    Parameters
    ----------
    path : Path

    Attributes
    ----------
    is_closed : bool
        Whether the file was closed; its descriptor may then belong to another file.
    """

    def __init__(self, path: Path) -> None:
        make_private(path)
        self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        self.is_closed = False

    @property
    def n_bytes(self) -> int:
        """The size of the file."""
        return os.fstat(self._descriptor).st_size

    def chunks(self) -> Iterator[bytes]:
        """Yield the content of the file in pieces."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        while chunk := os.read(self._descriptor, _CHUNK_BYTES):
            yield chunk

    def close(self) -> None:
        """Close the file; while it may be copied, use `KeyFiles.close`."""
        self.is_closed = True
        os.close(self._descriptor)


# -- backups -----------------------------------------------------------------------------------------------------------


def attached_key_files(files: KeyFiles, used: Mapping[int, KeyFile], others: Sequence[int]) -> list[AttachedFile]:
    """Return the files in `used`, and the files of the detectors in `others` that have one."""
    unused = [_UnusedFile(detector, files.path(detector)) for detector in others]
    return [
        *(_OpenedFile(detector, file) for detector, file in used.items()),
        *(each for each in unused if each.path.is_file()),
    ]


def restore_key_files(store: Store, files: KeyFiles) -> dict[int, ImondrianError]:
    """If the database is a restored backup, write the files in it to the folder, and delete them from the database.

    If that is interrupted, the next start does it again. Files that are damaged, or for which the disk has no space,
    stay in the database. Their errors are returned, by the id of the detector. Such a detector must not use its file in
    the folder, which may have another state.
    """
    known = {id_ for id_, _ in store.detectors()}
    detectors, failed = store.attached_files(), dict[int, ImondrianError]()
    for detector in detectors:
        try:
            files.restore(detector, store.attached_chunks(detector))
        except DamagedFileError as error:
            if detector in known:
                failed[detector] = error
        except OSError as error:
            failed[detector] = StorageError(
                f"Its keys are in the restored backup, but could not be written to {files.path(detector)}:"
                f" {error.strerror or error}."
            )
    if set(detectors) - set(failed):
        try:
            with store.transaction():
                store.remove_attached_files_except(failed)
        except StorageError as error:  # the next start would write the files again
            return {detector: failed.get(detector, error) for detector in detectors}
    return failed


class _OpenedFile(NamedTuple):
    """The open file of a detector."""

    detector: int
    file: KeyFile

    @property
    def n_bytes(self) -> int:
        """The size of the file."""
        return self.file.n_bytes

    def chunks(self) -> Iterator[bytes]:
        """Yield the content of the file in pieces."""
        return self.file.chunks()


class _UnusedFile(NamedTuple):
    """The file of a detector that could not be recovered; opened only while it is read, since there may be hundreds."""

    detector: int
    path: Path

    @property
    def n_bytes(self) -> int:
        """The size of the file."""
        return self.path.stat().st_size

    def chunks(self) -> Iterator[bytes]:
        """Yield the content of the file in pieces."""
        with closing(KeyFile(self.path)) as file:
            yield from file.chunks()
