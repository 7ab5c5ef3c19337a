"""How many points a detector has learned in this service, and how many of them it called anomalies."""

from typing import Any, NamedTuple, Self

from imondrian.service.doing import Outcome


class Counts(NamedTuple):
    """Counts since the detector was created; kept with each snapshot, and counted on from the journal after it."""

    n_points: int = 0
    n_anomalies: int = 0

    @classmethod
    def from_notes(cls, notes: dict[str, Any]) -> Self:
        """Return the counts that were kept with a snapshot; snapshots of earlier versions have none."""
        return cls(*(int(notes.get(name, 0)) for name in cls._fields))

    def plus(self, outcomes: list[Outcome]) -> "Counts":
        """Count what came of some entries."""
        learned = [outcome for outcome in outcomes if isinstance(outcome, list)]
        n_anomalies = sum(said.is_anomaly for outcome in learned for said in outcome)
        return Counts(self.n_points + sum(map(len, learned)), self.n_anomalies + n_anomalies)
