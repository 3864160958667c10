"""A result as a picture: every value as a dot and the medians as bars, or a figure over sizes with a straight line."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from regnum_bench.figures import Spread, unit
from regnum_bench.growth import Growth
from regnum_bench.result import Result
from regnum_bench.stages import STAGES
from regnum_bench.tables import what

OURS, BESIDE, REFERENCE = "#1f6feb", "#d29922", "#8b949e"
"""Colours: ours, the peer's, what figures are compared with."""
PANELS_MAX: Final = 12
"""Figures of one picture; the others are in the file."""
COLUMNS: Final = 3
STAGE_NAMES: Final = frozenset(stage.name for stages in STAGES.values() for stage in stages)
"""Figures that are parts of one time: they share a panel."""


class PlotError(Exception):
    """No picture can be drawn. The message says what to install."""


def draw(result: Result, path: Path) -> Path:
    """Write an SVG that needs nothing else; returns its path. Raises PlotError."""
    try:
        # Imported when needed: it takes a while, and a measurement needs none of it.
        from matplotlib import rc_context  # noqa: PLC0415
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise PlotError('no plot without matplotlib; install it with: pip install "regnum[bench]"') from error
    stages = {name: spread for name, spread in result.figures.items() if name.removesuffix("_ms") in STAGE_NAMES}
    single = [name for name in result.figures if name not in stages][:PANELS_MAX]
    series = result.details.get("series")
    panels = len(result.growth) or len(single) + bool(stages) + bool(series)
    columns = min(COLUMNS, panels)
    rows = -(-panels // columns)
    # Neither the moment nor chance is in the file: the same result gives the same bytes.
    with rc_context(
        {"svg.hashsalt": result.name, "font.size": 8, "axes.spines.top": False, "axes.spines.right": False}
    ):
        figure = Figure(figsize=(3.6 * columns, 2.8 * rows + 0.7), layout="constrained")
        axes = [figure.add_subplot(rows, columns, number + 1) for number in range(panels)]
        if result.growth:
            for ax, growth in zip(axes, result.growth, strict=True):
                _grown(ax, growth)
        else:
            theirs = {} if result.beside is None else result.beside.figures
            for ax, name in zip(axes, single, strict=False):
                _bars(ax, name, result.figures[name], theirs.get(name))
            if stages:
                _stages(axes[len(single)], stages)
            if series:
                _series(axes[-1], series)
        figure.suptitle(_title(result), fontsize=9)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", metadata={"Date": None})
    return path


def _bars(ax: Any, name: str, ours: Spread, theirs: Spread | None) -> None:
    sides = [("ours", ours, OURS), *([("beside", theirs, BESIDE)] if theirs is not None else [])]
    for place, (_, spread, colour) in enumerate(sides):
        ax.bar(place, spread.median, color=colour, alpha=0.45, width=0.6)
        ax.plot([place] * len(spread.values), spread.values, "o", color=colour, markersize=3)
        _label(ax, f"{spread.median:.4g}", (place, spread.median))
    ax.set_xticks(range(len(sides)), [label for label, _, _ in sides])
    ax.set_xlim(-0.8, len(sides) - 0.2)
    ax.set_ylim(bottom=0, top=_top([ours, *([theirs] if theirs is not None else [])]))
    ax.set_title(f"{name} ({unit(name)})" if unit(name) else name, fontsize=8)


def _stages(ax: Any, stages: Mapping[str, Spread]) -> None:
    """One bar for each stage, in order of time from above; the thin line reaches from the least to the most."""
    names = list(stages)[::-1]
    medians = [stages[name].median for name in names]
    reach = [[stages[name].median - stages[name].least for name in names]]
    reach.append([stages[name].most - stages[name].median for name in names])
    ax.barh(names, medians, xerr=reach, color=OURS, alpha=0.45, ecolor=OURS)
    ax.set_title("stages: median, least and most (ms)", fontsize=8)


def _series(ax: Any, series: Mapping[str, Any]) -> None:
    """Lines over time; what happened meanwhile as thin lines from top to bottom, a limit as a broken one."""
    for name, values in series["lines"].items():
        ax.plot(series["times_s"], values, label=name, linewidth=0.9)
    ax.axhline(series["limit"], linestyle="--", color=REFERENCE, linewidth=0.9)
    for at_s, what_happened in series["events"]:
        ax.axvline(at_s, color=BESIDE if "kill" in what_happened else REFERENCE, linewidth=0.6, alpha=0.6)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("s")
    ax.set_title(series["what"], fontsize=8)
    ax.legend(fontsize=6, frameon=False)


def _label(ax: Any, text: str, at: tuple[float, float]) -> None:
    ax.annotate(text, at, xytext=(0, 4), textcoords="offset points", ha="center", va="bottom", fontsize=7)


def _top(spreads: Sequence[Spread]) -> float:
    return max(spread.most for spread in spreads) * 1.15 or 1.0


def _grown(ax: Any, growth: Growth) -> None:
    ax.plot(growth.sizes, growth.straight(), "--", color=REFERENCE, label="in proportion to the smallest")
    ax.plot(growth.sizes, growth.medians, "o-", color=OURS, label="median")
    for size, median in zip(growth.sizes, growth.medians, strict=True):
        _label(ax, f"{median:.3g}", (size, median))
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(growth.sizes, [f"{size:,.0f}" for size in growth.sizes])
    ax.set_xticks([], minor=True)
    ax.set_xlabel(growth.size)
    ax.set_ylabel(f"{growth.figure} ({unit(growth.figure)})" if unit(growth.figure) else growth.figure)
    ax.set_title(f"{growth.verdict}: slope {growth.slope:.2f}, {growth.last_slope:.2f} at the end", fontsize=8)
    ax.legend(fontsize=6, frameon=False)


def _title(result: Result) -> str:
    dirty = " with changes" if result.commit.get("dirty") else ""
    return (
        f"{result.benchmark} on {result.shape['coordination']}: {what(result.shape)}\n"
        f"commit {result.commit.get('id')}{dirty}, {result.at}"
    )
