"""Data sets that come with scikit-learn."""

from sklearn.datasets import load_breast_cancer

from imondrian.datasets.content import Content, as_content

WHERE = "scikit-learn's copy"


def wbc() -> Content:
    """Give the breast cancer data (WDBC), malignant tumours being the anomalies."""
    bunch = load_breast_cancer()
    return as_content(bunch.data, bunch.target == 0, WHERE, tuple(map(str, bunch.feature_names)))


SETS = {"wbc": wbc}
