"""The files of detectors with a key in a backup: they are part of its one file, and are restored from it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from imondrian.service.detectors.key_files import KeyFile, KeyFiles
from imondrian.service.storage.store import AttachedFile, Store


class OpenedFile(NamedTuple):
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


class UnusedFile(NamedTuple):
    """The file of a detector that is set aside; it is open only while it is read, since there may be hundreds."""

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


def key_files(files: KeyFiles, used: Mapping[int, KeyFile], others: Sequence[int]) -> list[AttachedFile]:
    """Return the files of detectors: those in use, and those of other detectors, if they have one."""
    unused = [UnusedFile(detector, files.path(detector)) for detector in others]
    return [
        *(OpenedFile(detector, file) for detector, file in used.items()),
        *(each for each in unused if each.path.is_file()),
    ]


def restore_key_files(store: Store, files: KeyFiles) -> None:
    """If the database is a restored backup, write the files in it to the folder, and delete them from the database.

    If that is interrupted, the next start does it again.
    """
    detectors = store.attached_files()
    for detector in detectors:
        files.restore(detector, store.attached_chunks(detector))
    if detectors:
        with store.transaction():
            store.remove_attached_files()
