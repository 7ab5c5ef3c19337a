"""Find the odd ones among 569 breast tumours, and say what makes them odd."""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score

from imondrian import MondrianForest


def main() -> None:
    """Build a forest, score every row, show the ten oddest and how well the scores find the malignant ones."""
    data = load_breast_cancer()
    malignant = data.target == 0
    forest = MondrianForest(n_trees=100, max_samples=256, scale="std", seed=0).build(data.data)
    scores = forest.score(data.data, kind="size")
    parts = forest.explain(data.data, kind="size")

    print(f"{data.data.shape[0]} tumours, {data.data.shape[1]} features; labels are used for this report only.\n")
    print("The ten oddest      score  what makes them odd (its part of the score)")
    for row in np.argsort(-scores)[:10]:
        print(
            f"  row {row:3d} {_label(malignant[row]):10s} {scores[row]:.3f}  {_reasons(parts[row], data.feature_names)}"
        )

    print("\nHow well the scores rank the malignant above the benign (AUC, 0.5 is chance):")
    print(f"  size, scale='std'  {roc_auc_score(malignant, scores):.3f}")
    paper = MondrianForest(n_trees=100, max_samples=256, seed=0).build(data.data)
    print(f"  depth (the paper)  {roc_auc_score(malignant, paper.score(data.data)):.3f}   published: 0.86")


def _label(is_malignant: bool) -> str:  # noqa: FBT001
    return "malignant" if is_malignant else "benign"


def _reasons(parts: np.ndarray, names: np.ndarray) -> str:
    leading = np.argsort(-np.abs(parts))[:3]
    return ", ".join(f"{names[j]} {'high' if parts[j] > 0 else 'low'} ({abs(parts[j]):.2f})" for j in leading)


if __name__ == "__main__":
    main()
