"""Which columns of a table are features, and how the table was read: in words and as JSON."""

from typing import Any, NamedTuple

from imondrian.base.column_names import NO_NAME
from imondrian.tables.feature_columns import FeatureColumn

_MAX_LISTED = 8
_MAX_LEFT_OUT = 20


class ColumnFacts(NamedTuple):
    """Which columns are features, why the others are not, and how the table was read."""

    features: list[FeatureColumn]
    left_out: dict[str, str]  # reasons, by column
    filled: dict[str, int]  # number of missing numbers that were filled in, by feature
    notes: list[str]  # on how the table was read

    def as_json(self) -> dict[str, Any]:
        """Return the facts as JSON values."""
        return {
            "features": [feature.name for feature in self.features],
            "categorical": [feature.name for feature in self.features if feature.is_category],
            "left_out": self.left_out,
            "filled": self.filled,
            "notes": self.notes,
        }

    def in_words(self) -> dict[str, str]:
        """Return the facts as text, by name; some may be empty."""
        numbers = [feature.name for feature in self.features if not feature.is_category]
        categories = [feature.name for feature in self.features if feature.is_category]
        left_out = [f"{name or NO_NAME} ({reason})" for name, reason in self.left_out.items()]
        filled = [f"{name or NO_NAME} {n:,}" for name, n in self.filled.items()]
        return {
            "numbers": f"{len(numbers)}: {_listed(numbers)}" if numbers else "",
            "categories": f"{len(categories)}: {_listed(categories)}" if categories else "",
            "left out": _listed(left_out, _MAX_LEFT_OUT),
            "filled": f"{_listed(filled)} (missing; the median is used)" if filled else "",
            "notes": "; ".join(self.notes),
        }


def _listed(names: list[str], n_listed: int = _MAX_LISTED) -> str:
    text = ", ".join(name or NO_NAME for name in names[:n_listed])
    return text if len(names) <= n_listed else f"{text} and {len(names) - n_listed} more"
