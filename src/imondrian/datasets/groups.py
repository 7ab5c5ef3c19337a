"""Names of the data sets by group, and the lookup of an entry by name."""

from difflib import get_close_matches
from typing import Any

from imondrian.base.errors import InvalidInputError
from imondrian.datasets.catalogue import CATALOGUE, Entry
from imondrian.datasets.synthetic import SYNTHETIC

GROUPS = ("paper", "open", "streams", "adbench", "synthetic", "all")


def names(group: str = "all") -> tuple[str, ...]:
    """Return the names of the data sets of a group.

    Parameters
    ----------
    group : {"all", "paper", "open", "streams", "adbench", "synthetic"}
        "all": every set of the catalogue, which has no synthetic sets.
        "paper": the nine of the paper's tables.
        "open": those with a checksum (all but `cicids`); sets published twice count once.
        "streams": seven public sets that are often used as streams.
        "adbench": those of ADBench.
        "synthetic": those that `make_synthetic` draws.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> names("paper")
    ('wbc', 'pima', 'thyroid', 'satellite', 'optdigits', 'ionosphere', 'wine', 'smtp', 'cicids')
    >>> names("synthetic")
    ('moons', 'blob', 'two-blobs', 'unequal-blobs')
    """
    if group not in GROUPS:
        raise InvalidInputError(f"A group of data sets must be one of {', '.join(GROUPS)}, but is {group!r}.")
    if group == "synthetic":
        return tuple(SYNTHETIC)
    return tuple(name for name, entry in CATALOGUE.items() if _belongs(entry, group))


def find_entry(name: Any) -> Entry:
    """Return the entry of a name; for an unknown name, raise InvalidInputError with similar names."""
    if isinstance(name, str) and name in CATALOGUE:
        return CATALOGUE[name]
    if isinstance(name, str) and name in SYNTHETIC:
        raise InvalidInputError(f"{name} is synthetic and cannot be loaded: call make_synthetic({name!r}).")
    near = get_close_matches(str(name).lower(), CATALOGUE, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"the names are {', '.join(CATALOGUE)}."
    raise InvalidInputError(f"There is no data set {name!r}; {hint}")


def _belongs(entry: Entry, group: str) -> bool:
    if group == "open":
        return entry.checksum is not None and entry.same_as is None
    return group == "all" or group in entry.groups
