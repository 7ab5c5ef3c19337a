"""Load a data set by name: from a folder, from scikit-learn, from the cache, or from the network."""

import io
import os
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import NoReturn
from urllib.parse import urlsplit

from imondrian.base.errors import DamagedFileError, InvalidInputError
from imondrian.datasets import npz_files
from imondrian.datasets.catalogue import Entry
from imondrian.datasets.content import Content, check_exact, check_size
from imondrian.datasets.dataset import Dataset, MissingDatasetError
from imondrian.datasets.download import DownloadProgress, fetch
from imondrian.datasets.folders import DATA, cache_folder, data_folder
from imondrian.datasets.groups import find_entry
from imondrian.datasets.sources import Source

Check = Callable[[Content, Entry, str], None]
READERS = {".npz": "npz_files", ".mat": "mat_files", ".csv": "csv_files"}  # modules, imported when needed


def load(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    verify: bool = True,
    progress: DownloadProgress | None = None,
) -> Dataset:
    """Load a data set of the catalogue.

    It is looked up in the data folder (as .npz, .mat or .csv, or as first published), then in scikit-learn, if it is
    bundled there, then among earlier downloads, and finally on the network.

    Parameters
    ----------
    name : str
        One of `names()`.
    folder : path, optional
        The data folder; by default the one named by the environment variable IMONDRIAN_DATA.
    download : bool, default=True
        Whether to download a missing set. Downloads are stored in the folder named by the environment variable
        IMONDRIAN_CACHE (by default imondrian in XDG_CACHE_HOME or ~/.cache).
    verify : bool, default=True
        Whether a file in the data folder must match the checksum in the catalogue. If False, only the numbers of rows,
        features and anomalies must agree.
    progress : callable, optional
        Called with the number of bytes downloaded and the total, which is None if unknown.

    Returns
    -------
    Dataset

    Raises
    ------
    InvalidInputError
        If there is no data set of that name, the data folder does not exist, or a package that is needed to read the
        file is missing.
    DamagedFileError
        If a file in the data folder cannot be read, or if this file or scikit-learn's copy does not match the
        catalogue.
    MissingDatasetError
        If the data set is not found and cannot be downloaded.

    Examples
    --------
    >>> wbc = load("wbc")
    >>> wbc.X.shape, int(wbc.y.sum()), wbc.feature_names[0]
    ((569, 30), 212, 'mean radius')
    """
    entry = find_entry(name)
    content = _from_folder(entry, data_folder(folder), check_exact if verify else check_size)
    if content is None:
        content = _from_scikit_learn(entry)
    if content is None:
        content = _from_cache(entry)
    if content is None:
        content = _from_network(entry, progress) if download else _raise_missing(entry, ["download=False"])
    return Dataset(entry.name, content.X, content.y, content.feature_names, entry, content.n_dropped)


def _from_folder(entry: Entry, folder: Path | None, check: Check) -> Content | None:
    for path in () if folder is None else _paths(entry, folder):
        if path.is_file():
            content = _read(path, str(path), path.name, entry)
            check(content, entry, str(path))
            return content
    return None


def _paths(entry: Entry, folder: Path) -> Iterator[Path]:
    yield from (folder / (entry.file + extension) for extension in READERS)
    if entry.original is not None:
        yield folder / entry.original


def _from_scikit_learn(entry: Entry) -> Content | None:
    if not entry.is_bundled:
        return None
    bundled = import_module("imondrian.datasets.bundled")
    content: Content = bundled.SETS[entry.name]()
    check_exact(content, entry, bundled.WHERE)
    return content


def _from_cache(entry: Entry) -> Content | None:
    """Return an earlier download; a damaged file is ignored."""
    path = _cache_path(entry)
    try:
        content = npz_files.read(path, str(path), "y")
        check_exact(content, entry, str(path))
    except DamagedFileError:
        return None
    return content


def _from_network(entry: Entry, progress: DownloadProgress | None) -> Content:
    failures = []
    for url in entry.urls:
        try:
            file = io.BytesIO(fetch(url, progress))
            content = _read(file, url, PurePosixPath(urlsplit(url).path).name, entry)
            check_exact(content, entry, url)
        except (MissingDatasetError, DamagedFileError) as error:
            failures.append(str(error))
        else:
            _save(content, _cache_path(entry))
            return content
    return _raise_missing(entry, failures or ["no download URL is known"])


def _raise_missing(entry: Entry, failures: list[str]) -> NoReturn:
    reasons = "; ".join(failure.rstrip(".") for failure in failures)
    extensions = ", ".join(READERS)
    original = "" if entry.original is None else f", or unchanged as {entry.original},"
    raise MissingDatasetError(
        f"The data set {entry.name} is not available: {reasons}. Download it from {entry.page} and save it as "
        f"{entry.file} ({extensions}){original} in a folder passed to load or named by {DATA}."
    )


def _read(source: Source, where: str, name: str, entry: Entry) -> Content:
    """Read a file with the reader for its extension, or with the entry's own reader if it is the original file."""
    is_original = entry.original is not None and name == PurePosixPath(entry.original).name
    module = entry.original_reader if is_original else READERS.get(PurePosixPath(name).suffix.lower())
    if not module:
        *others, last = READERS
        raise DamagedFileError(f"The name of {where} must end in {', '.join(others)} or {last}.")
    try:
        read = import_module(f"imondrian.datasets.{module}").read
    except ModuleNotFoundError as error:
        raise InvalidInputError(f'{where}: {error.name} is needed to read it: pip install "imondrian[cli]".') from None
    try:
        content: Content = read(source, where, entry.label)
    except OSError as error:
        raise DamagedFileError(f"{where} cannot be read: {error}.") from None
    return content


def _cache_path(entry: Entry) -> Path:
    return cache_folder() / f"{entry.name}.npz"


def _save(content: Content, path: Path) -> None:
    try:
        npz_files.write(path, content)
    except OSError as error:
        warnings.warn(
            f"{path} cannot be written, so the data set will be downloaded again next time: {error}.", stacklevel=4
        )
