"""Back up and restore the files of detectors with a key: a backup is a single file that contains them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from imondrian.base.errors import DamagedFileError, ImondrianError
from imondrian.service.detectors.key_files import KeyFile, KeyFiles
from imondrian.service.errors import StorageError
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
    """The file of a detector that could not be recovered; opened only for reading, since there may be hundreds."""

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
    """Return the files in `used`, and the files of the detectors in `others` that have one."""
    unused = [UnusedFile(detector, files.path(detector)) for detector in others]
    return [
        *(OpenedFile(detector, file) for detector, file in used.items()),
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
