"""The sensors of a machine, minute by minute: one message when an incident opens, and one when it closes.

The data are generated with a fixed seed: a week of a machine whose load follows the working day, with three faults.
In the second one, every value is ordinary by itself; only their combination is not.

python examples/machine_sensors.py
"""

import numpy as np

from imondrian import IncidentEvent, StreamDetector

SENSORS = ["load", "temperature", "vibration"]
MINUTES = 7 * 24 * 60
FAULTS = {  # the first minute of each, and the first minute after it
    "a bearing wears: the vibration rises": (3_200, 3_260),
    "the cooling fails: the machine is hot without load": (5_800, 5_830),
    "the temperature sensor is stuck at 0": (8_400, 8_420),
}


def main() -> None:
    """Process the week row by row, as in production, and print what a person would be notified of."""
    detector = StreamDetector(n_features=3, seed=0, rules={"gap": 30})
    print("What happened:")
    for fault, (first, last) in FAULTS.items():
        print(f"  {clock(first)} to {clock(last)}  {fault}")
    print("\nWhat the detector reported:")
    for row in readings():
        detector.process(dict(zip(SENSORS, row, strict=True)))
        for event in detector.events:
            print(f"  {clock(event.index)}  {in_words(event)}")
    print(f"\n{detector.n_seen:,} rows, {detector.n_incidents} incidents, {detector.n_bytes / 1e6:.1f} MB of memory")


def in_words(event: IncidentEvent) -> str:
    """Return a line about an incident that opens or closes."""
    incident = event.incident
    if not incident.is_open:
        return f"incident {incident.number} closed after {incident.n_alarms} alarms"
    reason = incident.reasons[0]
    side = "high" if reason.is_high else "low"
    value = f"{SENSORS[reason.feature]} = {reason.value:.1f} ({side}; expected {reason.low:.1f} to {reason.high:.1f})"
    return f"incident {incident.number} opened, surprise {incident.surprise:.1f}: {value}"


def readings() -> np.ndarray:
    """Return load, temperature and vibration for each minute; the temperature follows the load."""
    rng, minute = np.random.default_rng(0), np.arange(MINUTES)
    is_day = (minute // 60 % 24 >= 6) & (minute // 60 % 24 < 20)
    load = np.where(is_day, 80.0, 10.0) + rng.normal(0.0, 4.0, MINUTES)
    temperature = 30.0 + 0.4 * load + rng.normal(0.0, 0.8, MINUTES)
    vibration = 1.0 + 0.01 * load + rng.normal(0.0, 0.05, MINUTES)
    (a, b), (c, d), (e, f) = FAULTS.values()
    vibration[a:b] += np.linspace(0.0, 2.0, b - a)
    temperature[c:d] = 62.0 + rng.normal(0.0, 0.8, d - c)
    temperature[e:f] = 0.0
    return np.column_stack([load, temperature, vibration])


def clock(minute: int) -> str:
    """Return the day and time of a minute."""
    return f"day {minute // 1440} {minute // 60 % 24:02d}:{minute % 60:02d}"


if __name__ == "__main__":
    main()
