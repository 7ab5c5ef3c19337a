"""What the options of a command come to, in groups that go together."""

from typing import NamedTuple

from imondrian.defaults import MAX_SAMPLES, N_JOBS, N_TREES, PRESET, SEED


class Source(NamedTuple):
    """A table to read."""

    path: str = "-"
    format: str | None = None
    separator: str | None = None
    no_header: bool = False


class Choice(NamedTuple):
    """The columns to use, and what to do where a value is missing."""

    features: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    time: str | None = None
    missing: str = "fail"


class Making(NamedTuple):
    """How to make a forest."""

    preset: str = PRESET
    threshold: str | None = None
    trees: int = N_TREES
    samples: int = MAX_SAMPLES
    seed: int = SEED
    jobs: int = -1


class Outputs(NamedTuple):
    """Where to write what."""

    table: str | None = None
    report: str | None = None
    model: str | None = None


class Telling(NamedTuple):
    """How much to say, and how."""

    quiet: bool = False
    as_json: bool = False


class Detecting(NamedTuple):
    """How to make a detector of a stream; None: as usual, or as the model has it."""

    preset: str | None = None
    threshold: str | None = None
    window: int | None = None
    samples: int | None = None
    trees: int | None = None
    shingle: int | None = None
    warm_up: int | None = None
    learn_anomalies: bool | None = None
    seed: int | None = None


class Watching(NamedTuple):
    """How to watch a stream."""

    model: str | None = None
    save_every: int | None = None
    follow: str | None = None
    explain: bool = False
    on_error: str = "skip"
    jobs: int = N_JOBS


class Drawing(NamedTuple):
    """What to draw, and where."""

    output: str | None = None
    model: str | None = None
    tree: int = 0
    levels: int = 5
    max_time: float | None = None


class Reproducing(NamedTuple):
    """What to run of the paper's experiments, on what, and where to leave it; None: as each experiment has it."""

    data: str | None = None
    datasets: str | None = None
    methods: str | None = None
    seeds: int | None = None
    folds: int = 10
    budget: float = 60.0
    jobs: int = -1
    output: str = "docs"
