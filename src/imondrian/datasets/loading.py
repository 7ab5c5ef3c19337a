"""Loading a data set by name: from a folder, from scikit-learn, from the cache, or from the net."""

import io
import os
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from imondrian.datasets import archives
from imondrian.datasets.catalogue import Entry
from imondrian.datasets.content import Content, check_exact, check_size
from imondrian.datasets.dataset import Dataset, MissingDatasetError
from imondrian.datasets.download import Progress, fetch
from imondrian.datasets.folders import DATA, cache_folder, data_folder
from imondrian.datasets.groups import entry_of
from imondrian.datasets.sources import Source
from imondrian.errors import DamagedFileError, InvalidInputError

Check = Callable[[Content, Entry, str], None]
READERS = {".npz": "archives", ".mat": "matlab", ".csv": "texts"}  # modules, imported when a file asks for them


def load(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    verify: bool = True,
    progress: Progress | None = None,
) -> Dataset:
    """Load a data set of the catalogue.

    It is looked for in the folder of data (as .npz, .mat or .csv, or as first published), then in scikit-learn if that
    brings it along, then among earlier downloads, and at last on the net.

    Parameters
    ----------
    name : str
        One of `names()`.
    folder : path, optional
        The folder of data; otherwise the one that the environment variable IMONDRIAN_DATA names.
    download : bool, default=True
        Whether the net may be asked. What comes is kept in the folder IMONDRIAN_CACHE (otherwise ~/.cache/imondrian).
    verify : bool, default=True
        Whether a file in the folder of data must have the very content of the catalogue. Otherwise the numbers of
        rows, features and anomalies must be right.
    progress : callable, optional
        Called with the bytes that have been downloaded and their number, or None where that is not known.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> wbc = load("wbc")
    >>> wbc.X.shape, int(wbc.y.sum()), wbc.feature_names[0]
    ((569, 30), 212, 'mean radius')
    """
    entry = entry_of(name)
    content = _in_folder(entry, data_folder(folder), check_exact if verify else check_size)
    if content is None:
        content = _in_scikit_learn(entry)
    if content is None:
        content = _in_cache(entry)
    if content is None:
        content = _on_the_net(entry, progress) if download else _missing(entry, ["downloads are not allowed"])
    return Dataset(entry.name, content.X, content.y, content.feature_names, entry, content.n_dropped)


def _in_folder(entry: Entry, folder: Path | None, check: Check) -> Content | None:
    for path in () if folder is None else _places(entry, folder):
        if path.is_file():
            content = _read(path, str(path), path.name, entry)
            check(content, entry, str(path))
            return content
    return None


def _places(entry: Entry, folder: Path) -> Iterator[Path]:
    yield from (folder / (entry.file + ending) for ending in READERS)
    if entry.original is not None:
        yield folder / entry.original


def _in_scikit_learn(entry: Entry) -> Content | None:
    if not entry.is_bundled:
        return None
    bundled = import_module("imondrian.datasets.bundled")
    content: Content = bundled.SETS[entry.name]()
    check_exact(content, entry, bundled.WHERE)
    return content


def _in_cache(entry: Entry) -> Content | None:
    """Give what was downloaded earlier; a file that has been damaged since is as good as none."""
    path = _cached(entry)
    try:
        content = archives.read(path, str(path), "y")
        check_exact(content, entry, str(path))
    except DamagedFileError:
        return None
    return content


def _on_the_net(entry: Entry, progress: Progress | None) -> Content:
    failures = []
    for address in entry.addresses:
        try:
            file = io.BytesIO(fetch(address, progress))
            content = _read(file, address, PurePosixPath(urlsplit(address).path).name, entry)
            check_exact(content, entry, address)
        except (MissingDatasetError, DamagedFileError) as error:
            failures.append(str(error))
        else:
            _keep(content, _cached(entry))
            return content
    return _missing(entry, failures or ["no address to download it from is known"])


def _missing(entry: Entry, failures: list[str]) -> Content:
    reasons = "; ".join(failure.rstrip(".") for failure in failures)
    endings = ", ".join(READERS)
    original = "" if entry.original is None else f", or as published as {entry.original}"
    raise MissingDatasetError(
        f"The data set {entry.name} is not at hand: {reasons}. Fetch it from {entry.page} and save it as {entry.file} "
        f"({endings}){original} in a folder that is given to load or named by {DATA}."
    )


def _read(source: Source, where: str, name: str, entry: Entry) -> Content:
    """Read a file by the module for the ending of its name, or by the one for the original of the entry."""
    is_original = entry.original is not None and name == PurePosixPath(entry.original).name
    module = entry.original_reader if is_original else READERS.get(PurePosixPath(name).suffix.lower())
    if not module:
        raise DamagedFileError(f"{where} must end in {', '.join(READERS)}.")
    try:
        read = import_module(f"imondrian.datasets.{module}").read
    except ModuleNotFoundError as error:
        raise InvalidInputError(f'{where}: {error.name} is needed to read it: pip install "imondrian[cli]".') from None
    try:
        content: Content = read(source, where, entry.label)
    except OSError as error:
        raise DamagedFileError(f"{where} cannot be read: {error}.") from None
    return content


def _cached(entry: Entry) -> Path:
    return cache_folder() / f"{entry.name}.npz"


def _keep(content: Content, path: Path) -> None:
    try:
        archives.write(path, content)
    except OSError as error:
        warnings.warn(f"{path} cannot be written, so that it has to be downloaded again: {error}.", stacklevel=4)
