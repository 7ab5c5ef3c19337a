"""The paper's online mode: every tree holds every point. Each workload runs in its own process."""

from functools import partial
from typing import Any

from contests import Contest, Effort
from imondrian.base.errors import ImondrianError
from imondrian.datasets import load
from imondrian.experiments.paper_results import PUBLISHED, STAGES, TableCell
from processes import ONLINE_TREES, in_new_process
from timing import Entrant, Measurement, measurements
from workloads import ONLINE_ROWS, ONLINE_START, TREES

EXTEND = f"online, {ONLINE_ROWS} x 3, {TREES} trees: extend"
MEMORY = f"online, {ONLINE_ROWS} x 3, {TREES} trees: peak memory"
SYNTHETIC_STAGES = f"online, {ONLINE_ROWS} x 3, {TREES} trees: five stages with re-scoring"
SMTP_STAGES = f"online, SMTP, {TREES} trees: five stages with re-scoring"
PAPER = "paper"  # its published figure for SMTP
REPEATS = 3
BLOCK, BLOCKS_AROUND = 1_000, 5
FEATURES, SIZES = (3, 10), (10_000, 100_000, 1_000_000)
EARLY, LATE = 1_000, 95_000
ZONES = {EARLY: (1_000, 4_000), LATE: (90_000, 95_000)}
OURS = Entrant("ours")
Found = dict[str, Any]


def growth_name(n_features: int, n_points: int) -> str:
    """Return the name of the workload: time per point at a size."""
    return f"online, {ONLINE_TREES} trees, d = {n_features}: a point at {n_points}"


def growth_memory_name(n_features: int) -> str:
    """Return the name of the workload: peak memory at the largest size."""
    return f"online, {ONLINE_TREES} trees, d = {n_features}: peak memory at {SIZES[-1]}"


def smtp_growth_name(n_points: int) -> str:
    """Return the name of the workload: time per point at a size, for points like those of SMTP."""
    return f"online, {ONLINE_ROWS} x 3, {ONLINE_TREES} trees: a point at {n_points}"


def measure_extend(effort: Effort) -> list[Measurement]:
    """Extend a forest of 19,000 points."""
    sizes = [size // effort.divisor for size in (ONLINE_ROWS, ONLINE_START)]
    found = [in_new_process("online_mode", *sizes) for _ in range(effort.repeats(REPEATS))]
    return [
        *measurements(EXTEND, {OURS: [one["s"] for one in found]}, "s"),
        *measurements(MEMORY, {OURS: [one["GB"] for one in found]}, "GB"),
    ]


def measure_stages(effort: Effort, workload: str, points: str) -> list[Measurement]:
    """Run the paper's stages on synthetic points or on SMTP, beside the seconds published in the paper."""
    seconds = [in_new_process("stages", points, effort.divisor)["s"] for _ in range(effort.repeats(REPEATS))]
    printed = sum(PUBLISHED[TableCell("online", "imforest", "smtp", stage)].seconds for stage in STAGES)
    return measurements(workload, {OURS: seconds, Entrant(PAPER): [printed]}, "s")


def why_no_smtp() -> str | None:
    """Return the reason why the data set is missing, or None."""
    try:
        load("smtp", download=False)
    except ImondrianError as error:
        return str(error)
    return None


def measure_smtp_growth(effort: Effort) -> list[Measurement]:
    """Measure the time per point at two sizes, for points like those of SMTP."""
    found = measure_growth_in_process(effort, "smtp_like", 3, ZONES, [LATE] * REPEATS)
    return [m for size in ZONES for m in at_size(smtp_growth_name(size), found, size)]


def measure_growth(effort: Effort, n_features: int) -> list[Measurement]:
    """Extend one forest to a million points and others to fewer; time the blocks around each size."""
    around = BLOCKS_AROUND * BLOCK
    zones = {size: (size - around, size + around) for size in SIZES}
    *_, (_, some), (_, all_of_them) = zones.values()
    found = measure_growth_in_process(effort, "normal", n_features, zones, [some, all_of_them, some])
    sizes = [m for size in SIZES for m in at_size(growth_name(n_features, size), found, size)]
    return [*sizes, *measurements(growth_memory_name(n_features), {OURS: [found["GB"]]}, "GB")]


def measure_growth_in_process(
    effort: Effort, kind: str, n_features: int, zones: dict[int, tuple[int, int]], ends: list[int]
) -> Found:
    """Extend forests in another process; with less effort all sizes shrink equally."""
    smaller = {size: [end // effort.divisor for end in zone] for size, zone in zones.items()}
    ends = [end // effort.divisor for end in ends]
    return in_new_process("growth", kind, n_features, smaller, BLOCK // effort.divisor, ends)


def at_size(workload: str, found: Found, size: int) -> list[Measurement]:
    """Return the measurement at one size."""
    return measurements(workload, {OURS: found["us"][str(size)]}, "us a point")


CONTESTS = [
    Contest((EXTEND, MEMORY), measure_extend),
    Contest((SYNTHETIC_STAGES,), partial(measure_stages, workload=SYNTHETIC_STAGES, points="synthetic")),
    Contest((SMTP_STAGES,), partial(measure_stages, workload=SMTP_STAGES, points="smtp"), why_no_smtp),
    Contest(tuple(map(smtp_growth_name, ZONES)), measure_smtp_growth),
    *(
        Contest(
            (*(growth_name(n_features, size) for size in SIZES), growth_memory_name(n_features)),
            partial(measure_growth, n_features=n_features),
        )
        for n_features in FEATURES
    ),
]
