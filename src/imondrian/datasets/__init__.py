"""Data sets: load those of the paper and of our documentation by name, and generate the paper's synthetic sets."""

from imondrian.datasets.catalogue import CATALOGUE, Entry
from imondrian.datasets.content import checksum
from imondrian.datasets.dataset import Dataset, MissingDatasetError
from imondrian.datasets.groups import names
from imondrian.datasets.loading import load
from imondrian.datasets.synthetic import make_synthetic

__all__ = ["CATALOGUE", "Dataset", "Entry", "MissingDatasetError", "checksum", "load", "make_synthetic", "names"]
