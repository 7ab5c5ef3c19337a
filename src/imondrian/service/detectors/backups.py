"""The files of detectors with a key in a backup: they are part of its one file, and are restored from it."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import NamedTuple

from imondrian.service.detectors.key_files import KeyFile, KeyFiles
from imondrian.service.storage.store import Store


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


@contextmanager
def open_key_files(files: KeyFiles, used: Mapping[int, KeyFile], others: Sequence[int]) -> Iterator[list[OpenedFile]]:
    """Yield the files of detectors: those in use, and those of other detectors, if they have one."""
    with ExitStack() as stack:
        paths = {detector: files.path(detector) for detector in others}
        opened = {
            detector: stack.enter_context(closing(KeyFile(path))) for detector, path in paths.items() if path.exists()
        }
        yield [OpenedFile(detector, file) for detector, file in {**used, **opened}.items()]


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
