"""Incidents in words and as JSON values."""

from collections.abc import Callable
from typing import Any

from imondrian.alarms.incidents import AlarmReason, Incident
from imondrian.models.explanations import Frequency, Reason

CategoryText = Callable[[int, float], str]  # returns the text of a category from its feature and code; "" if unknown


def unknown_category(_feature: int, _code: float) -> str:
    """Return "" for every category: the texts are not known."""
    return ""


def reasons_in_words(
    incident: Incident, names: list[str], category_text: CategoryText = unknown_category
) -> list[Reason]:
    """Return the reasons for an incident, with feature names and category texts; `str(reason)` is readable text.

    Examples
    --------
    >>> reason = AlarmReason(0, 0, 0.38, 36.7, is_high=True, median=22.0, low=21.4, high=23.0)
    >>> incident = Incident(0, 10, 12, 3, 10, None, 11, 0.8, 5.1, (reason,))
    >>> [str(reason) for reason in reasons_in_words(incident, ["temperature"])]
    ['temperature = 36.7 (high; expected 21.4 to 23), 38%']
    """
    return [_in_words(reason, incident.score, names, category_text) for reason in incident.reasons]


def incident_as_json(
    incident: Incident, names: list[str], category_text: CategoryText = unknown_category
) -> dict[str, Any]:
    """Return an incident in types that JSON supports; rows are identified by their index in the stream, from 0."""
    return {
        "incident": incident.number,
        "is_open": incident.is_open,
        "first": incident.first,
        "last": incident.last,
        "opened": incident.opened,
        "closed": incident.closed,
        "n_alarms": incident.n_alarms,
        "peak": {"index": incident.peak, "anomaly_score": incident.score, "surprise": incident.surprise},
        "explanation": [
            {
                "feature": reason.feature,
                "rows_ago": reason.rows_ago[0],
                "value": reason.value if reason.text is None else reason.text,
                "share": reason.share,
                "side": reason.side or None,
                "expected": reason.expected,
                "text": str(reason),
            }
            for reason in reasons_in_words(incident, names, category_text)
        ],
    }


def _in_words(reason: AlarmReason, score: float, names: list[str], category_text: CategoryText) -> Reason:
    words = Reason(
        names[reason.feature],
        reason.value,
        reason.share,
        reason.is_high,
        rows_ago=(reason.lag, reason.lag),
        view=reason.view,
        part=(1.0 if reason.is_high or reason.count is not None else -1.0) * reason.share * score,
    )
    if reason.count is None:
        return words._replace(expected=(reason.low, reason.high))
    text = category_text(reason.feature, reason.value)
    return words._replace(text=text, frequency=Frequency(reason.count, reason.n_points))
