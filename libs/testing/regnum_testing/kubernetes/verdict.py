"""Which promises held. Pure.

Limits are those of docs/operations/kubernetes.md; a promise about something that was not done has no row.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from regnum_testing.kubernetes.observed import Disturbance, Gate, Kind, Observed

STALL_MAX_S: Final[Mapping[Kind, float]] = MappingProxyType(
    {
        Kind.ROLLING: 1.0,
        Kind.DRAIN: 1.0,
        Kind.FORCE: 3.0,
        Kind.STOPPED: 5.0,
        Kind.ALL_PODS: 40.0,
        Kind.STORE_AWAY: 1.0,
    }
)
"""Longest time without an acknowledgement."""
GENTLE: Final = frozenset({Kind.ROLLING, Kind.DRAIN, Kind.STORE_AWAY})
"""What no partition may fall below its minimum by, and no container restart."""
ELECTING: Final = frozenset({Kind.ROLLING, Kind.DRAIN})
"""Of those, what changes leaders or the ISR: the event log has to have told of it."""
BACK_MAX_S: Final = 45.0
"""Within which time the Pod of a stopped process is Ready again."""
BACK_NOTE: Final = "back after s"
"""Note of a disturbance that says how long that took."""
HANDSHAKES: Final = "regnum_tls_handshake_failures_total"
DENIALS: Final = "regnum_acl_denials_total"
"""What processes count of those who are refused."""
DENIED: Final = frozenset({"CLUSTER_AUTHORIZATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"})
"""Reasons that access rules give."""
UNNOTICED: Final = "under 0.2 s"
"""What is said of a stall too short to be told of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One promise."""

    promise: str
    limit: str
    result: str
    holds: bool


def rows(observed: Observed) -> tuple[Row, ...]:
    """Every promise about what was done."""
    return (
        *_refused(observed),
        *_records(observed),
        *_stalls(observed),
        *_below(observed),
        *_restarts(observed),
        *_settled(observed),
    )


def longest_s(observed: Observed, kind: Kind) -> float:
    """The longest stall in disturbances of a kind; 0: none was long enough to be told of."""
    return max((one.length_s for each in of(observed, kind) for one in observed.stalls_in(each)), default=0.0)


def of(observed: Observed, kind: Kind) -> list[Disturbance]:
    """Disturbances of a kind."""
    return [one for one in observed.disturbances if one.kind is kind]


def said(length_s: float) -> str:
    """A stall in words."""
    return f"{length_s:.2f} s" if length_s else UNNOTICED


def _refused(observed: Observed) -> Iterator[Row]:
    for one in observed.attempts:
        match one.gate:
            case Gate.NETWORK:
                # No process of ours sees it: there is no reason and no count.
                holds, result = not one.connected, "no connection"
            case Gate.HANDSHAKE:
                count = one.counted.get(HANDSHAKES, 0)
                holds, result = one.connected and count > 0, f"{count:.0f} handshakes counted"
            case Gate.RULES:
                count = one.counted.get(DENIALS, 0)
                holds, result = one.reason in DENIED and count > 0, f"{one.reason}, {count:.0f} denials counted"
        yield Row(
            promise=f"{one.what} is refused",
            limit=one.gate.value,
            result="it did what it wanted"
            if one.done
            else result
            if holds
            else f"{result}; {one.reason}: {one.message}",
            holds=holds and not one.done,
        )


def _records(observed: Observed) -> Iterator[Row]:
    if observed.broken_off:
        yield Row(promise="all that was wanted is done", limit="done", result=observed.broken_off[:300], holds=False)
    back = observed.read_back
    if back is None:
        yield Row(promise="the load comes to its end", limit="read back", result="it did not", holds=False)
        return
    yield Row(
        promise="produces given up", limit="0", result=f"{back.failed} of {back.acknowledged}", holds=not back.failed
    )
    yield Row(
        promise="records lost, doubled, moved, out of order",
        limit="0",
        result=f"{back.lost}, {back.doubled + back.read_again}, {back.moved}, {back.out_of_order + back.invented}",
        holds=not back.wrong and bool(back.acknowledged),
    )


def _stalls(observed: Observed) -> Iterator[Row]:
    for kind, limit_s in STALL_MAX_S.items():
        done = of(observed, kind)
        if not done:
            continue
        longest = longest_s(observed, kind)
        yield Row(
            promise=f"longest stall, {len(done)} x {kind.value}",
            limit=f"{limit_s:g} s",
            result=said(longest),
            holds=longest <= limit_s,
        )
    stopped = of(observed, Kind.STOPPED)
    if stopped:
        backs = [float(one.notes.get(BACK_NOTE, "inf")) for one in stopped]
        yield Row(
            promise="a stopped process's Pod is Ready again",
            limit=f"{BACK_MAX_S:g} s",
            result=f"{max(backs):.1f} s",
            holds=max(backs) <= BACK_MAX_S,
        )


def _below(observed: Observed) -> Iterator[Row]:
    gentle = [one for one in observed.disturbances if one.kind in GENTLE]
    if not gentle:
        return
    found = [one for one in observed.below if any(one.end > each.begin and one.begin < each.end for each in gentle)]
    where = {f"{one.topic}/{one.partition}" for one in found}
    longest = max((one.end - one.begin for one in found), default=0.0)
    back = observed.read_back
    unseen = any(one.kind in ELECTING for one in gentle) and (back is None or not back.states)
    yield Row(
        promise="partitions below min.insync.replicas in restarts and drains",
        limit="0",
        result=f"{len(where)}, for {longest:.1f} s at most"
        if found
        else "no state of a partition was told"
        if unseen
        else "0",
        holds=not found and not unseen,
    )


def _restarts(observed: Observed) -> Iterator[Row]:
    gentle = [one for one in observed.disturbances if one.kind in GENTLE]
    if gentle:
        count = sum(observed.restarts_in(one) for one in gentle)
        yield Row(promise="containers restarted unasked", limit="0", result=str(count), holds=not count)


def _settled(observed: Observed) -> Iterator[Row]:
    if observed.disturbances:
        left = [f"{one.kind.value} of {one.what}" for one in observed.disturbances if not one.settled]
        yield Row(
            promise="everything Ready and in sync again after each",
            limit=str(len(observed.disturbances)),
            result=str(len(observed.disturbances) - len(left)) + (f"; not after {', '.join(left)}" if left else ""),
            holds=not left,
        )
