"""The targets: which medians are compared, and the required ratio or limit."""

from typing import NamedTuple

from suites import boxes, categories, files, fit, fleet, one_row, online, score, start_up, streams, threads


class Side(NamedTuple):
    """One side of a comparison: the median of a workload for a contestant and a number of threads."""

    workload: str
    contestant: str = "ours"
    threads: int = 1


class Target(NamedTuple):
    """A bound on a median, or on the ratio of two medians."""

    name: str
    over: Side  # the numerator
    under: Side | None  # the denominator; None: the bound is on the median of `over`
    relation: str  # ">=" or "<="
    bound: float
    unit: str  # of the bound; "x" for a ratio
    source: str


# where targets come from
SPEED, BEFORE, PAPER = "speed goals", "first benchmark", "1/30 of the paper's 1,612 s"
CATEGORIES, FILES, KEYS = "categories", "small files", "one detector per key"


def faster(workload: str, peer: str, times: float, source: str = SPEED) -> Target:
    """Require that ours is at least `times` times as fast as the peer."""
    return Target(f"{workload}: {peer} over ours", Side(workload, peer), Side(workload), ">=", times, "x", source)


def two_threads_gain(workload: str, contestant: str = "ours") -> Target:
    """Require that two threads are at least 1.7 times as fast as one."""
    over, under = (Side(workload, contestant, n_threads) for n_threads in (1, 2))
    return Target(f"{workload}: one thread over two", over, under, ">=", 1.7, "x", SPEED)


def grows_at_most(name: str, late: str, early: str, times: float, source: str) -> Target:
    """Require that a late point takes at most `times` times as long as an early one."""
    return Target(name, Side(late), Side(early), "<=", times, "x", source)


def at_most(workload: str, bound: float, unit: str, source: str = BEFORE) -> Target:
    """Require that ours is at most the bound."""
    return Target(workload, Side(workload), None, "<=", bound, unit, source)


def categories_cost_at_most(work: str, times: float) -> Target:
    """Require that five categorical features of ten take at most `times` times as long as ten numbers."""
    name, five = categories.name_of(work), categories.contestant_of(5)
    return Target(f"{name}: {five} over numbers", Side(name, five), Side(name), "<=", times, "x", CATEGORIES)


EXPECTED, SIZE = "score by expected", "score by size"
TARGETS = (
    at_most(start_up.START, 1.5, "s"),
    at_most(start_up.FIRST_USE, 20.0, "s"),
    faster(fit.name_of(10_000), "scikit-learn", 10.0, BEFORE),
    faster(fit.name_of(1_000_000), "isotree", 1.0),
    faster(fit.name_of(1_000_000), "coniferest", 1.0),
    faster(fit.name_of(1_000_000), "scikit-learn", 20.0),
    faster(score.name_of(100_000, 10), "coniferest", 2.0),
    faster(score.name_of(100_000, 10), "scikit-learn", 2.5),
    faster(score.name_of(100_000, 10), "isotree", 4.0),
    faster(one_row.FOREST, "coniferest", 2.0),
    faster(one_row.FOREST, "scikit-learn", 500.0),
    faster(boxes.row_name(EXPECTED), "krcf", 3.0),
    faster(boxes.row_name(SIZE), "krcf", 3.0),
    faster(boxes.block_name(EXPECTED), "krcf", 5.0),
    faster(boxes.block_name(SIZE), "krcf", 5.0),
    faster(streams.name_of("paper", "process"), "krcf", 5.0),
    faster(streams.name_of("paper", "process"), "river", 1.0),
    faster(streams.name_of("paper", "many"), "krcf", 10.0),
    faster(streams.name_of("practice", "process"), "krcf", 2.5),
    faster(streams.name_of("practice", "many"), "krcf", 5.0),
    faster(online.SYNTHETIC_STAGES, online.PAPER, 30.0, PAPER),
    faster(online.SMTP_STAGES, online.PAPER, 30.0, PAPER),
    at_most(online.EXTEND, 60.0, "s"),
    at_most(online.MEMORY, 1.5, "GB"),
    grows_at_most(
        "online: time per point at 95,000 over 1,000",
        online.smtp_growth_name(online.LATE),
        online.smtp_growth_name(online.EARLY),
        2.0,
        BEFORE,
    ),
    grows_at_most(
        "online, d = 10: time per point at 10^6 over 10^4",
        online.growth_name(10, 1_000_000),
        online.growth_name(10, 10_000),
        2.5,
        SPEED,
    ),
    at_most(files.name_of(files.SIZE, 10), 1.5, "MB", FILES),
    at_most(files.name_of(files.LOAD, 10), 8.0, "ms", FILES),
    at_most(files.name_of(files.SAVE, 10), 8.0, "ms", FILES),
    at_most(files.name_of(files.SIZE, 500), 12.0, "MB", FILES),
    at_most(fleet.ROWS, 20.0, "us a row", KEYS),
    at_most(fleet.MEMORY, 128.0, "KB", KEYS),
    at_most(fleet.RETURN, 1.0, "ms", KEYS),
    *(categories_cost_at_most(work, 1.4) for work in categories.WORKLOADS),
    two_threads_gain(threads.ARITHMETIC, threads.MACHINE),
    two_threads_gain(threads.FIT),
    two_threads_gain(threads.SCORE),
    two_threads_gain(threads.EXTEND),
)
