"""Data sets that are part of scikit-learn."""

from sklearn.datasets import load_breast_cancer

from imondrian.datasets.content import Content, as_content

WHERE = "scikit-learn's copy"


def wbc() -> Content:
    """Return the breast cancer data (WDBC), with malignant tumours as the anomalies."""
    bunch = load_breast_cancer()
    return as_content(bunch.data, bunch.target == 0, WHERE, tuple(map(str, bunch.feature_names)))


SETS = {"wbc": wbc}
