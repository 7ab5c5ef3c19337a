"""Words about a watched stream: the reasons for its incidents, and what was noticed about its times."""

from imondrian.alarms.incidents import Incident
from imondrian.base.durations import in_words
from imondrian.models.explanations import Reason
from imondrian.stream.incident_records import CategoryText, reasons_in_words, unknown_category
from imondrian.stream.series_views import TimeCounts

WITHOUT_TIMES = "rows are taken to be equally spaced, and the hour of the day is not used"
_N_REASONS = 3  # largest number of reasons in an explanation
_MIN_SHARE = 0.05  # reasons with a smaller share of the score are left out, except for the first


def reason_texts(incident: Incident, names: list[str], category_text: CategoryText = unknown_category) -> list[str]:
    """Return the main reasons for an incident in words."""
    reasons = reasons_in_words(incident, names, category_text)[:_N_REASONS]
    shown = [reason for i, reason in enumerate(reasons) if i == 0 or reason.share >= _MIN_SHARE]
    return [reason_text(reason, names) for reason in shown]


def reason_text(reason: Reason, names: list[str]) -> str:
    """Return a reason in words; for a series with one feature, leave out the share, which is always 100 %."""
    return str(reason).removesuffix(", 100%") if reason.view is not None and len(names) == 1 else str(reason)


def time_facts(now: TimeCounts, before: TimeCounts | None = None) -> str:
    """Return what was noticed about times since `before`, such as "a row every 5 min, 2 late rows, 1 hole"."""
    earlier = TimeCounts(0, 0, 0, now.step) if before is None else before
    counts = (
        (now.n_late - earlier.n_late, "late row"),
        (now.n_repeated - earlier.n_repeated, "repeated time"),
        (now.n_holes - earlier.n_holes, "hole"),
    )
    step = f"a row every {in_words(now.step)}" if now.step > 0.0 else "the usual step is not known"
    return ", ".join([step, *(f"{n:,} {name}{'s' * (n > 1)}" for n, name in counts if n)])
