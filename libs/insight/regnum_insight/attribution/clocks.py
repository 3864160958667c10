"""How far the clocks of processes differ, by the calls that they made to one another in one trace. Pure.

A call begins at its caller before it begins at the callee, and ends there before it ends here. So the difference of
the two clocks lies between the difference of the ends and that of the beginnings: a bound on both sides, which needs
no symmetry. Bounds over several processes add up; of all ways the narrowest counts (a system of difference
constraints: shortest paths).
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from regnum_telemetry import conventions as names

from regnum_insight.spans.span import Kind, Span

_OK: Final = "OK"
_SERVER: Final = Kind.SERVER.value
"""A plain number: each span is compared with it."""


class Offset(NamedTuple):
    """What is known of one clock: how far it is ahead of the reference clock."""

    low_ns: int | None
    """At least so much; None: nothing is known below."""
    high_ns: int | None
    """At most so much; None: nothing is known above."""
    correction_ns: int
    """What is taken from its times. Zero, unless equal clocks are out of the question."""
    bound_ns: int | None
    """By how much a corrected time may be wrong, either way; None: nobody can say."""
    consistent: bool
    """Whether all calls agree: a clock that was set within the trace leaves calls that contradict each other."""


def offset_between(low_ns: int | None, high_ns: int | None, *, consistent: bool = True) -> Offset:
    """What two bounds say."""
    if low_ns is None or high_ns is None:
        return Offset(low_ns, high_ns, 0, None, consistent)
    correction_ns = 0 if low_ns <= 0 <= high_ns else (low_ns + high_ns) // 2
    return Offset(low_ns, high_ns, correction_ns, max(high_ns - correction_ns, correction_ns - low_ns, 0), consistent)


UNKNOWN: Final = offset_between(None, None)
"""No call connects this process with the reference."""
SAME: Final = offset_between(0, 0)
"""The reference itself."""


def offsets(spans: Sequence[Span], by_id: Mapping[str, Span], reference: str) -> dict[str, Offset]:
    """What is known of the clock of each process of a trace. The reference has SAME."""
    processes = sorted({span.process for span in spans} | {reference})
    if len(processes) == 1:
        return {reference: SAME}
    ahead = _constraints(spans, by_id)
    high, agrees = _shortest(ahead, processes, reference)
    reverse = {(callee, caller): bound for (caller, callee), bound in ahead.items()}
    low, agrees_too = _shortest(reverse, processes, reference)
    consistent = agrees and agrees_too
    found = {}
    for process in processes:
        upper, lower = high.get(process), low.get(process)
        if not consistent and upper is not None and lower is not None and upper < -lower:
            upper, lower = -lower, -upper
        found[process] = offset_between(None if lower is None else -lower, upper, consistent=consistent)
    return {**found, reference: SAME}


def _constraints(spans: Sequence[Span], by_id: Mapping[str, Span]) -> dict[tuple[str, str], int]:
    """For pairs (one, other) the least upper bound of: clock of other minus clock of one."""
    ahead: dict[tuple[str, str], int] = {}
    appends = {_batch(span): span for span in spans if span.name == names.FIRST_APPEND}
    for span in spans:
        if span.kind == _SERVER:
            found = _of_call(by_id.get(span.parent_id), span)
        elif span.name == names.OUTAGE:
            found = _of_batch(span, appends.get(_batch(span)))
        else:
            continue
        for pair, bound in found:
            known = ahead.get(pair)
            if known is None or bound < known:
                ahead[pair] = bound
    return ahead


def _of_call(call: Span | None, served: Span) -> list[tuple[tuple[str, str], int]]:
    if call is None or call.kind != Kind.CLIENT or call.process == served.process:
        return []
    found = [((call.process, served.process), served.start_ns - call.start_ns)]
    # A call that its caller gave up goes on at the callee.
    if call.attributes.get(names.RPC_STATUS, _OK) == _OK:
        found.append(((served.process, call.process), call.end_ns - served.end_ns))
    return found


def _of_batch(wait: Span, append: Span | None) -> list[tuple[tuple[str, str], int]]:
    """The same batch: it was appended after it was sent, and acknowledged after that."""
    sent = wait.number(names.SENT_UNIX_NANO)
    if append is None or sent is None or append.process == wait.process:
        return []
    return [
        ((wait.process, append.process), append.end_ns - sent),
        ((append.process, wait.process), wait.end_ns - append.end_ns),
    ]


def _batch(span: Span) -> tuple[str | None, ...]:
    of = span.attributes.get
    return of(names.TOPIC), of(names.PARTITION), of(names.LEADER_EPOCH), of(names.OFFSET)


def _shortest(
    ahead: Mapping[tuple[str, str], int], processes: Sequence[str], reference: str
) -> tuple[dict[str, int], bool]:
    """The least upper bound for each process that can be reached, and whether none could shrink for ever."""
    bound = {reference: 0}
    for _ in processes:
        changed = False
        for (one, other), length in ahead.items():
            if one in bound and (other not in bound or bound[one] + length < bound[other]):
                bound[other] = bound[one] + length
                changed = True
        if not changed:
            return bound, True
    return bound, False
