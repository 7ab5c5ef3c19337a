"""Fill in the values of the preset in the settings of a forest on Spark, and check them before any work starts."""

from typing import Any, NamedTuple, Self

from imondrian.alarms.thresholds import batch_rule, contamination_of
from imondrian.base.defaults import preset_of, resolved
from imondrian.forest.mondrian_forest import MondrianForest
from imondrian.forest.scores import score_kind
from imondrian.rows.missing_values import checked_missing

_MAX_RANDOM_STATE = 2**32 - 1  # the largest that scikit-learn accepts


class FitSettings(NamedTuple):
    """Preset, kind, scale and contamination of a forest, and its rule for missing numbers."""

    preset: Any
    kind: Any
    scale: Any
    contamination: Any  # "auto", "kmeans", a share, or a string such as "surprise 3"
    missing: Any

    @classmethod
    def checked(cls, preset: Any, kind: Any, scale: Any, contamination: Any, missing: Any) -> Self:
        """Return the settings with every "preset" replaced by the value of the preset.

        All are checked, except for the scale, which the forest checks.
        """
        preset_of(preset)
        settings = cls(
            preset,
            resolved(kind, "kind", preset),
            resolved(scale, "scale", preset),
            resolved(contamination, "contamination", preset),
            checked_missing(missing),
        )
        score_kind(settings.kind)
        batch_rule(settings.contamination, preset)
        return settings

    @classmethod
    def with_threshold(cls, preset: Any, kind: Any, scale: Any, threshold: Any, missing: Any) -> Self:
        """Return checked settings; the threshold has the form of `--threshold`, in which a number is a probability."""
        contamination = contamination_of(resolved(threshold, "table_threshold", preset))
        return cls.checked(preset, kind, scale, contamination, missing)

    def parameters(self, forest: MondrianForest) -> dict[str, Any]:
        """Return the parameters of the scikit-learn estimator for a forest with these settings."""
        return {
            "n_estimators": forest.n_trees,
            "max_samples": forest.max_samples,
            "window": None,
            "preset": self.preset,
            "kind": self.kind,
            "scale": forest.scale,
            "contamination": self.contamination,
            "categorical": list(forest.categorical),
            "missing": self.missing,
            "n_jobs": None,
            "random_state": forest.seed if forest.seed <= _MAX_RANDOM_STATE else None,
        }
