"""Draw the scaling plot from the JSON of a run: four panels that compare ours with the peers, on one thread.

Usage: python benchmarks/scaling.py [results.json] [plot.png]; default: the last full run.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import NullFormatter, NullLocator

from suites import fit, online, score, streams

RESULTS = Path(__file__).parent / "results"
LINE_STYLES = {  # Okabe-Ito colours, safe for colour-blind readers; markers differ too
    "ours": ("#0072B2", "o"),
    "scikit-learn": ("#E69F00", "s"),
    "isotree": ("#009E73", "^"),
    "coniferest": ("#CC79A7", "D"),
}
INK, GREY, PEER_BAR, DARK_BLUE = "#222222", "#666666", "#B0B0B0", "#0B3954"
SCORED_ROWS = 100_000
GAP = 0.075  # between two labels, as a share of the axes height


class Line(NamedTuple):
    """The medians of one line, and its label."""

    label: str
    colour: str
    marker: str
    points: list[tuple[float, float]]


class Medians:
    """The medians of a run with one thread."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.is_quick = found["run"] != "full"
        self.by_name = {
            (m["workload"], m["contestant"]): m["median"] for m in found["measurements"] if m["threads"] == 1
        }

    def get(self, workload: str, contestant: str = "ours") -> float | None:
        """Return a median, or None if it was not measured."""
        return self.by_name.get((workload, contestant))

    def line(self, label: str, contestant: str, names: dict[int, str], factor: float, style: tuple[str, str]) -> Line:
        """Return the line of a contestant over workloads of several sizes."""
        found = [(size, self.get(name, contestant)) for size, name in names.items()]
        return Line(label, *style, [(size, factor * value) for size, value in found if value is not None])

    def lines(self, names: dict[int, str], factor: float) -> list[Line]:
        """Return the lines of ours and of the peers."""
        return [self.line(contestant, contestant, names, factor, style) for contestant, style in LINE_STYLES.items()]


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw the four panels."""
    medians = Medians(found)
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12, wspace=0.04, hspace=0.06)
    figure = Figure(figsize=(11.0, 8.0), layout=layout, dpi=150)
    (top_left, top_right), (low_left, low_right) = figure.subplots(2, 2)
    draw_fit(top_left, medians)
    draw_score(top_right, medians)
    draw_online(low_left, medians)
    draw_streams(low_right, medians)
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    kind = "Quick run: sizes are smaller than stated. " if medians.is_quick else ""
    figure.supxlabel(f"{kind}One thread, medians.\n{versions}", fontsize=7, color=GREY)
    figure.savefig(path)


def draw_fit(axes: Axes, medians: Medians) -> None:
    """Plot the fitting time against the number of rows."""
    names = {n_rows: fit.name_of(n_rows) for n_rows in fit.ROWS}
    finish(axes, medians.lines(names, 1e3), "Fit 100 trees x 256 samples, d = 10", "rows", "ms")


def draw_score(axes: Axes, medians: Medians) -> None:
    """Plot the time to score a row against the number of features."""
    names = {n_features: score.name_of(SCORED_ROWS, n_features) for n_features in score.FEATURES}
    lines = medians.lines(names, 1e6 / SCORED_ROWS)
    finish(axes, lines, f"Score {SCORED_ROWS:,} rows, 100 x 256", "features", "µs a row")
    axes.set_xticks(score.FEATURES, [str(n_features) for n_features in score.FEATURES])


def draw_online(axes: Axes, medians: Medians) -> None:
    """Plot the time to extend by a point against the number of points held."""
    styles = {3: (LINE_STYLES["ours"][0], "o"), 10: (DARK_BLUE, "s")}
    lines = [
        medians.line(
            f"ours, d = {n_features}",
            "ours",
            {size: online.growth_name(n_features, size) for size in online.SIZES},
            1.0,
            styles[n_features],
        )
        for n_features in online.FEATURES
    ]
    finish(axes, lines, "Extend 20 trees that hold every point", "points held", "µs a point")


def finish(axes: Axes, lines: Sequence[Line], title: str, x_name: str, y_name: str) -> None:
    """Draw lines on logarithmic axes, with labels at their right ends."""
    lines = [line for line in lines if line.points]
    set_style(axes, title)
    if not lines:
        show_no_data(axes)
        return
    for line in lines:
        is_ours = line.label.startswith("ours")
        axes.plot(*zip(*line.points, strict=True), color=line.colour, marker=line.marker, lw=2.4 if is_ours else 1.4)
    axes.set_xscale("log")
    axes.set_yscale("log")
    set_time_limits(axes, [y for line in lines for _, y in line.points])
    axes.set_xlabel(x_name, color=INK)
    axes.set_ylabel(y_name, color=INK)
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(visible=True, which="major", color="#E4E4E4", lw=0.7)
    label_lines(axes, lines)


def set_time_limits(axes: Axes, values: Sequence[float]) -> None:
    """Make the time axis span at least a factor of ten, centred on the values."""
    low, high = np.log10(min(values)), np.log10(max(values))
    margin = max(0.5 * (1.0 - (high - low)), 0.12)
    axes.set_ylim(10.0 ** (low - margin), 10.0 ** (high + margin))
    if high - low < 1.5:
        ticks = [digit * 10.0**power for power in range(int(low) - 3, int(high) + 3) for digit in (1, 2, 5)]
        axes.set_yticks(ticks)
        axes.set_ylim(10.0 ** (low - margin), 10.0 ** (high + margin))
    axes.yaxis.set_minor_formatter(NullFormatter())


def label_lines(axes: Axes, lines: Sequence[Line]) -> None:
    """Write the labels to the right of the line ends, moved apart where they would overlap."""
    low, high = np.log(axes.get_ylim())
    ordered = sorted(lines, key=lambda line: line.points[-1][1])
    heights = np.array([(np.log(line.points[-1][1]) - low) / (high - low) for line in ordered])
    for line, height in zip(ordered, spread_out(heights, GAP), strict=True):
        weight = "bold" if line.label.startswith("ours") else "normal"
        axes.text(1.02, height, line.label, transform=axes.transAxes, color=line.colour, va="center", weight=weight)


def spread_out(heights: np.ndarray, gap: float) -> np.ndarray:
    """Move ascending heights so that neighbours are at least one gap apart; a group that is moved keeps its mean."""
    groups: list[np.ndarray] = []
    for height in heights:
        groups.append(np.array([height]))
        while len(groups) > 1 and evenly_spaced(groups[-1], gap)[0] - evenly_spaced(groups[-2], gap)[-1] < gap:
            groups[-2:] = [np.concatenate(groups[-2:])]
    return np.concatenate([evenly_spaced(group, gap) for group in groups])


def evenly_spaced(group: np.ndarray, gap: float) -> np.ndarray:
    """Space heights one gap apart around their mean."""
    return group.mean() + gap * (np.arange(group.size) - (group.size - 1) / 2)


def draw_streams(axes: Axes, medians: Medians) -> None:
    """Plot the time per stream point as bars; the peers can only process points one by one."""
    set_style(axes, "Stream: score and learn, 100 x 256 of 2,048, d = 10")
    ours = {
        f"ours, {preset}, {label}": medians.get(streams.name_of(preset, mode))
        for preset in streams.PRESETS
        for mode, label in (("many", "in blocks"), ("process", "one by one"))
    }
    peers = {
        label: medians.get(streams.name_of("paper", "process"), peer)
        for peer, label in (("krcf", "krcf"), ("river", "River, 10 half-space trees"), ("rrcf", "rrcf"))
    }
    bars = {label: value for label, value in (ours | peers).items() if value is not None}
    if not bars:
        show_no_data(axes)
        return
    colours = [LINE_STYLES["ours"][0] if label.startswith("ours") else PEER_BAR for label in bars]
    axes.barh(list(bars), list(bars.values()), color=colours, height=0.68)
    axes.set_xscale("log")
    axes.set_xlim(min(bars.values()) / 4.0, max(bars.values()) * 6.0)
    for position, value in enumerate(bars.values()):
        axes.text(value * 1.12, position, f"{value:,.0f}" if value >= 100 else f"{value:.3g}", va="center", color=INK)
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("µs a point", color=INK)


def set_style(axes: Axes, title: str) -> None:
    """Set the title of a panel, and remove the unused spines."""
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, labelsize=9)


def show_no_data(axes: Axes) -> None:
    """Write that nothing was measured."""
    axes.text(0.5, 0.5, "not measured in this run", transform=axes.transAxes, ha="center", color=GREY)
    axes.set_xticks([])
    axes.set_yticks([])


if __name__ == "__main__":
    source, target = (*sys.argv[1:], *("latest.json", "scaling.png")[len(sys.argv) - 1 :])
    draw(json.loads((RESULTS / source).read_text()), RESULTS / target)
