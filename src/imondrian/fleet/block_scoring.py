"""Score, learn and label the rows of a block with the kernels of the engine."""

from typing import Any, NamedTuple

from imondrian.alarms.thresholds import FIXED, KMEANS, SHARE, SURPRISE, StreamingThreshold, stream_rule
from imondrian.base.defaults import PRESET, resolved_for_stream
from imondrian.engine.fleet import (
    Block,
    LabelRule,
    Labels,
    Shard,
    label_by_score,
    label_by_share,
    label_by_surprise,
    label_by_two_means,
    score_depths_and_learn,
    score_expected_depths_and_learn,
    score_sizes_and_learn,
)
from imondrian.engine.window import Selection

_LEARN = {
    "size": score_sizes_and_learn,
    "expected": score_expected_depths_and_learn,
    "depth": score_depths_and_learn,
}
_LABEL = {
    SURPRISE: label_by_surprise,
    FIXED: label_by_score,
    SHARE: label_by_share,
    KMEANS: label_by_two_means,
}


class Learning(NamedTuple):
    """How the detectors of a fleet learn."""

    selection: Selection  # which points of the window a tree holds
    n_scaled: int  # number of features whose weights adapt: n_features if the scale is adaptive, otherwise 0


def score_and_label(shard: Shard, block: Block, labels: Labels, learning: Learning, parameters: dict[str, Any]) -> None:
    """Score, learn and label the rows of a block that belong to one shard.

    It can be repeated after an interruption: the kernels skip the rows that are done.

    Parameters
    ----------
    shard : Shard
    block : Block
        The rows; the scores are written to it.
    labels : Labels
        The labels are written to it.
    learning : Learning
    parameters : dict
        The parameters of the detectors.
    """
    _LEARN[parameters["kind"]](shard, learning.selection, learning.n_scaled, block)
    rule = stream_rule(parameters["threshold"])
    _LABEL[rule.name](shard, _label_rule(parameters), block, labels)


def _label_rule(parameters: dict[str, Any]) -> LabelRule:
    rule = stream_rule(parameters["threshold"])
    threshold = StreamingThreshold(parameters["threshold"], max(parameters["window"] // 2, 1))
    value = rule.probability if rule.name == SURPRISE else rule.value
    return LabelRule(value, threshold.growth, threshold.run_weight, parameters["warm_up"])


def alarm_level(threshold: float | str) -> float:
    """Return the surprise at the threshold or, if its rule is not based on surprise, at the default threshold."""
    rule = stream_rule(threshold)
    default = stream_rule(resolved_for_stream("preset", "threshold", PRESET)).value
    return rule.value if rule.name == SURPRISE else default
