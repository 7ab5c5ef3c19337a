"""Data sets: load by name those of the paper and of our tables, and draw the paper's synthetic ones."""

from imondrian.datasets.catalogue import CATALOGUE, Entry
from imondrian.datasets.content import checksum
from imondrian.datasets.dataset import Dataset, MissingDatasetError
from imondrian.datasets.groups import names
from imondrian.datasets.loading import load
from imondrian.datasets.synthetic import make_synthetic

__all__ = ["CATALOGUE", "Dataset", "Entry", "MissingDatasetError", "checksum", "load", "make_synthetic", "names"]
