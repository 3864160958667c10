"""Pictures as SVG text: stacked chains, waterfalls, heat maps, points. Coordinates in pixels. Pure."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, NamedTuple

LABEL: Final = 190
"""Width of the column of names."""
PLOT: Final = 760
"""Width of the plot beside it."""
ROW: Final = 22
"""Height of a row."""
_AXIS: Final = 22
_TICKS: Final = (1, 2, 5)


class Bar(NamedTuple):
    """One bar of a row."""

    begin: float
    """Where it begins, in units of the axis."""
    end: float
    """Where it ends."""
    style: str
    """Class of its colour."""
    text: str
    """What is said of it where the pointer rests."""
    label: str = ""
    """What is written into it, where it is wide enough."""


class Row(NamedTuple):
    """One row of bars."""

    name: str
    """What stands before it."""
    bars: Sequence[Bar]
    """Its bars."""
    outlined: bool = False
    """Whether it is the one to look at."""


def bars(rows: Sequence[Row], *, begin: float, end: float, unit: str = "ms", about: str) -> str:
    """Rows of bars over one axis. ``about`` is what a screen reader says."""
    span = max(end - begin, 1e-9)
    height = _AXIS + len(rows) * ROW + 6

    def x(value: float) -> float:
        return LABEL + (min(max(value, begin), end) - begin) / span * PLOT

    parts = [_open(LABEL + PLOT + 20, height, about)]
    for tick in ticks(begin, end):
        at = x(tick)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{_AXIS - 4}" y2="{height - 4}"/>')
        parts.append(f'<text class="tick" x="{at:.1f}" y="12">{tick:g} {unit}</text>')
    for position, row in enumerate(rows):
        y = _AXIS + position * ROW
        parts.append(f'<text x="4" y="{y + 14}">{escape(row.name[:30])}</text>')
        for bar in row.bars:
            width = max(x(bar.end) - x(bar.begin), 0.8)
            parts.append(
                f'<g><title>{escape(bar.text)}</title><rect class="{bar.style}" x="{x(bar.begin):.1f}" y="{y + 2}" '
                f'width="{width:.1f}" height="{ROW - 5}"/>'
            )
            if bar.label and width > 7 * len(bar.label):
                parts.append(f'<text class="in" x="{x(bar.begin) + 4:.1f}" y="{y + 14}">{escape(bar.label)}</text>')
            parts.append("</g>")
        if row.outlined and row.bars:
            first, last = x(min(bar.begin for bar in row.bars)), x(max(bar.end for bar in row.bars))
            parts.append(
                f'<rect class="outline" x="{first - 1:.1f}" y="{y + 1}" width="{last - first + 2:.1f}" '
                f'height="{ROW - 3}"/>'
            )
    parts.append("</svg>")
    return "".join(parts)


def heat(rows: Sequence[tuple[str, Sequence[float | None]]], columns: Sequence[str], *, about: str) -> str:
    """A heat map: a row for each name, a column for each of ``columns``; darker is longer, by its own row's largest."""
    width = PLOT / max(1, len(columns))
    height = _AXIS + len(rows) * ROW + 6
    parts = [_open(LABEL + PLOT + 20, height, about)]
    every = max(1, len(columns) // 8)
    for position, name in enumerate(columns):
        if position % every == 0:
            parts.append(f'<text class="left" x="{LABEL + position * width:.1f}" y="12">{escape(name)}</text>')
    for position, (name, values) in enumerate(rows):
        y = _AXIS + position * ROW
        parts.append(f'<text x="4" y="{y + 14}">{escape(name[:30])}</text>')
        largest = max((value for value in values if value is not None), default=0) or 1
        for column, value in enumerate(values):
            if value is None:
                continue
            parts.append(
                f'<rect class="heat" style="fill-opacity:{0.06 + 0.94 * value / largest:.2f}" '
                f'x="{LABEL + column * width:.1f}" y="{y + 1}" width="{max(width - 1, 0.8):.1f}" height="{ROW - 2}">'
                f"<title>{escape(name)}, {escape(columns[column])}: {value:.1f} ms</title></rect>"
            )
    parts.append("</svg>")
    return "".join(parts)


def points(values: Iterable[tuple[float, float, str, str]], *, x_name: str, y_name: str, about: str) -> str:
    """Points: x, y, class, text. Both axes begin at zero."""
    found = list(values)
    across = max((x for x, _, _, _ in found), default=1) or 1
    up = max((y for _, y, _, _ in found), default=1) or 1
    height, bottom = 240, 205
    parts = [_open(LABEL + PLOT + 20, height, about)]
    for tick in ticks(0, across):
        at = LABEL + tick / across * PLOT
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="10" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{at:.1f}" y="{bottom + 15}">{tick:g}</text>')
    for tick in ticks(0, up):
        at = bottom - tick / up * (bottom - 15)
        parts.append(f'<line class="grid" x1="{LABEL}" x2="{LABEL + PLOT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="end" x="{LABEL - 6}" y="{at + 4:.1f}">{tick:g}</text>')
    for x, y, style, text in found:
        parts.append(
            f'<circle class="{style}" cx="{LABEL + x / across * PLOT:.1f}" cy="{bottom - y / up * (bottom - 15):.1f}" '
            f'r="4"><title>{escape(text)}</title></circle>'
        )
    parts.append(f'<text class="tick" x="{LABEL + PLOT / 2}" y="{bottom + 32}">{escape(x_name)}</text>')
    parts.append(f'<text x="4" y="20">{escape(y_name)}</text></svg>')
    return "".join(parts)


def ticks(begin: float, end: float) -> list[float]:
    """Round numbers between two, about six."""
    rough = (end - begin) / 6
    if rough <= 0:
        return [begin]
    power: float = 1.0
    while power * 10 <= rough:
        power *= 10
    while power > rough:
        power /= 10
    step = next((power * factor for factor in _TICKS if power * factor >= rough), power * 10)
    first = -(-begin // step) * step
    return [round(first + position * step, 9) for position in range(int((end - first) / step + 1e-9) + 1)]


def _open(width: float, height: float, about: str) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img" '
        f'aria-label="{escape(about)}">'
    )
