"""A run as a picture: what was done when, which Pods were Ready, and where acknowledgements stood still. Pure."""

from collections.abc import Callable, Iterator
from typing import Final
from xml.sax.saxutils import escape

from regnum_testing.kubernetes.observed import Observed, PodChange
from regnum_testing.kubernetes.verdict import STALL_MAX_S

WIDTH: Final = 1400
LEFT: Final = 170
ROW: Final = 14
STALLS: Final = 120
"""Height of the part that shows stalls."""
READY, AWAY, STALL, BEYOND, BELOW, DONE = "#2da44e", "#d0d7de", "#d29922", "#cf222e", "#8250df", "#ddf4ff"


def as_svg(observed: Observed) -> str:
    """The picture. Nothing outside of it is needed to show it."""
    ends = [one.at for one in observed.seconds] + [one.end for one in observed.disturbances] or [0.0, 1.0]
    begin, end = min(ends), max(ends)
    across = (WIDTH - LEFT - 10) / max(1.0, end - begin)
    pods = sorted({one.pod for one in observed.pods})
    height = 40 + STALLS + 30 + ROW * len(pods) + 30

    def x(at: float) -> float:
        return LEFT + (min(max(at, begin), end) - begin) * across

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif"',
        'font-size="10">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="8" y="16" font-size="12">{escape(observed.overlay)}: acknowledgements and Pods</text>',
    ]
    parts += [
        _box(x(one.begin), 24, x(one.end), height - 24, DONE, f"{one.kind.value}: {one.what}")
        for one in observed.disturbances
    ]
    parts += _stalls(observed, x)
    top = 40 + STALLS + 30
    for number, pod in enumerate(pods):
        y = top + number * ROW
        parts.append(f'<text x="8" y="{y + 10}">{escape(pod)}</text>')
        parts.append(_box(LEFT, y + 2, x(end), y + ROW - 2, AWAY, f"{pod}: not Ready"))
        for since, until in ready_times([one for one in observed.pods if one.pod == pod], end):
            parts.append(_box(x(since), y + 2, x(until), y + ROW - 2, READY, f"{pod}: Ready"))
    for seconds in range(0, int(end - begin) + 1, max(10, int((end - begin) / 20 / 10) * 10)):
        parts.append(f'<text x="{x(begin + seconds):.1f}" y="{height - 8}">{seconds} s</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def ready_times(changes: list[PodChange], end: float) -> Iterator[tuple[float, float]]:
    """From when to when Pods of a name were Ready. A successor may come before its predecessor is gone."""
    since: dict[str, float] = {}
    for one in changes:
        if one.ready:
            since.setdefault(one.uid, one.at)
        elif one.uid in since:
            yield since.pop(one.uid), one.at
    for at in since.values():
        yield at, end


def _stalls(observed: Observed, x: Callable[[float], float]) -> Iterator[str]:
    """Stalls as bars whose height is their length, red beyond their limit; times below the minimum ISR under them."""
    floor = 40 + STALLS
    longest = max((one.length_s for one in observed.stalls), default=1.0)
    yield f'<text x="8" y="{floor}">stalls, the longest {longest:.2f} s</text>'
    yield f'<text x="8" y="{floor + 18}">below min.insync</text>'
    for one in observed.stalls:
        limits = [
            STALL_MAX_S[each.kind] for each in observed.disturbances if one.end > each.begin and one.begin < each.end
        ]
        colour = BEYOND if not limits or one.length_s > max(limits) else STALL
        high = max(2.0, one.length_s / longest * STALLS)
        yield _box(
            x(one.begin), floor - high, x(one.end), floor, colour, f"partition {one.partition}: {one.length_s:.2f} s"
        )
    for each in observed.below:
        said = f"{each.topic}/{each.partition}: {each.in_sync} in sync for {each.end - each.begin:.2f} s"
        yield _box(x(each.begin), floor + 10, x(each.end), floor + 20, BELOW, said)


def _box(left: float, top: float, right: float, bottom: float, colour: str, title: str) -> str:
    wide = max(1.0, right - left)
    return (
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{bottom - top:.1f}" fill="{colour}">'
        f"<title>{escape(title)}</title></rect>"
    )
