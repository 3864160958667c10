"""Events in words and rows. Pure."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from regnum_client.admin.describing.events import ClusterEvent, EventState
    from regnum_client.cluster.view import PartitionView

COLUMNS: Final = ("time", "event", "subject", "change", "why", "decided_by")

BECAUSE: Final[Mapping[str, str]] = {
    "lifeline-broken": "a broker died",
    "silence": "a broker fell silent: probes stayed unanswered",
    "registration-changed": "a broker's registration went, came or was renewed",
    "controlled-shutdown": "a broker asked to stop",
    "leader-isr": "the leader changed its in-sync replicas itself",
    "preferred-balance": "leadership went back to the preferred replica",
    "leader-cut-off": "the leader's followers could not reach it",
    "creation": "it was created",
    "deletion": "it was deleted",
    "recovery": "a person accepted the loss of records",
    "config": "settings changed",
    "replica-offline": "a live broker could not use its replica",
    "replica-usable": "a live broker could use its replica again",
    "succession": "a new controller fitted partitions to the brokers that it found",
    "written-by-hand": "a person wrote to the store",
    "reassignment": "replicas were reassigned",
    "election-requested": "an election was requested",
    "settling": "partitions were fitted to the live brokers",
    "controller-gone": "the controller before was gone",
    "not-written-down": "a controller was ended before it wrote down why",
    "unspecified": "no reason is recorded",
}
"""Causes as the end of a sentence."""


MOVES: Final[Mapping[str, str]] = {
    "reassignment-started": "A reassignment began",
    "reassignment-moving": "It grew, or lost replicas of an earlier target,",
    "reassignment-completed": "It was switched",
    "reassignment-cancelled": "A reassignment was called back",
    "reassignment-undone": "It went back",
}
"""Steps of a reassignment as the beginning of a sentence."""

ASKED: Final = frozenset({"reassignment-started", "reassignment-cancelled"})
"""Those of them that a caller asks for."""


def time_of(unix_ms: int) -> str:
    """A moment for people, UTC."""
    moment = datetime.fromtimestamp(unix_ms / 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{unix_ms % 1000:03d}Z"


def record_time_of(timestamp_ms: int) -> str:
    """The same of a record, or the bare number of one that no calendar has: any client may have written it."""
    try:
        return time_of(timestamp_ms)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)


def row_of(event: "ClusterEvent") -> dict[str, Any]:
    """An event in a table."""
    return {
        "time": time_of(event.time_unix_ms),
        "event": event.kind.value,
        "subject": _subject(event),
        "change": _change(event),
        "why": _reason(event),
        "decided_by": f"{event.controller} in epoch {event.position.epoch}",
    }


def document_of(event: "ClusterEvent") -> dict[str, Any]:
    """An event for programs."""
    return {
        "controller_epoch": event.position.epoch,
        "number": event.position.number,
        "time_unix_ms": event.time_unix_ms,
        "controller_id": event.controller,
        "kind": event.kind.value,
        "cause": event.cause.value,
        "evidence": event.evidence,
        "trace_id": event.trace_id,
        "topic": event.topic,
        "topic_id": event.topic_id,
        "partition": event.partition,
        "broker": event.broker,
        "broker_epoch": event.broker_epoch,
        "before": _state(event.before),
        "after": _state(event.after),
        "count": event.count,
        "detail": event.detail,
        "who": event.who,
        "replicas_before": list(event.replicas_before),
        "replicas_after": list(event.replicas_after),
    }


def why(topic: str, view: "PartitionView", events: "Sequence[ClusterEvent]", *, offline: str = "") -> list[str]:
    """Sentences that say why a partition's leader is where it is.

    Args:
        topic: its topic.
        view: the partition as it is now.
        events: what the log has of it, newest first.
        offline: why nobody leads and what helps, as the controller says; empty: somebody does, or it did not say.
    """
    name = f"{topic}/{view.number}"
    leads = view.leader >= 0
    led = f"is led by broker {view.leader}" if leads else "has no leader"
    in_sync = f"in sync are {_ids(view.isr)} of its replicas {_ids(view.replicas)}"
    said = [f"{name} {led} in leader epoch {view.leader_epoch}; {in_sync}."]
    if reason := offline or view.offline_reason:
        said.append(f"Why it has no leader, and what helps: {reason}.")
    elif not leads:
        said.append(f"Why it has no leader, and what helps, is shown by `regnum partitions list --offline {topic}`.")
    decisive = next((one for one in events if _begins(one, view.leader_epoch)), None)
    if decisive is None:
        said.append(_not_known(events))
    else:
        said.extend(_decided(decisive))
    later = next((one for one in events if one.kind.value == "isr-changed"), None)
    if later is not None and (decisive is None or later.position > decisive.position):
        said.append(
            f"Its in-sync replicas last changed at {time_of(later.time_unix_ms)} {_isr(later)}: {_because(later)}."
        )
    said.extend(_moves(events))
    if leads and view.replicas and view.leader != view.replicas[0]:
        preferred = view.replicas[0]
        where = "in sync, and gets it back with the next balance" if preferred in view.isr else "not in sync"
        said.append(f"Broker {preferred}, which is preferred as leader, is {where}.")
    return said


def _begins(event: "ClusterEvent", leader_epoch: int) -> bool:
    """Whether a leader epoch began with it."""
    if event.kind.value not in {"leader-elected", "partition-offline"} or event.after is None:
        return False
    return event.after.leader_epoch == leader_epoch


def _decided(event: "ClusterEvent") -> list[str]:
    before, after = event.before, event.after
    if event.cause.value == "not-written-down":
        return [f"How it came to that is not in the event log: {_because(event)}. It was found so {_found_at(event)}."]
    since = f"since {time_of(event.time_unix_ms)}, because {_because(event)}"
    if before is not None and after is not None and before.leader == after.leader:
        # A leader epoch that began anew under the same leader, or again under none.
        leads = "It has no leader" if after.leader is None else f"Broker {after.leader} leads"
        led = "It had no leader before either" if after.leader is None else "It led before as well"
        said = [
            f"{leads} in leader epoch {after.leader_epoch} {since}.",
            f"{led}, in leader epoch {before.leader_epoch}, with {_ids(before.isr)} in sync.",
        ]
    else:
        became = "It has had no leader" if after is None or after.leader is None else f"Broker {after.leader} has led"
        said = [f"{became} {since}."]
        if before is not None:
            led = "it had no leader" if before.leader is None else f"broker {before.leader} led"
            said.append(f"Until then {led}, in leader epoch {before.leader_epoch}, with {_ids(before.isr)} in sync.")
    said.append(
        f"Election process {event.controller} decided it in controller epoch {event.position.epoch} "
        f"(event {event.position.epoch}.{event.position.number})."
    )
    if event.trace_id:
        said.append(
            f"Its trace is {event.trace_id}: `regnum failovers report` shows where its time went, under that trace id."
        )
    return said


def _found_at(event: "ClusterEvent") -> str:
    return (
        f"at {time_of(event.time_unix_ms)} by election process {event.controller}, in controller epoch "
        f"{event.position.epoch} (event {event.position.epoch}.{event.position.number})"
    )


def _moves(events: "Sequence[ClusterEvent]") -> list[str]:
    """What became of its last reassignment: who asked for it, and the last step."""
    steps = [one for one in events if one.kind.value in MOVES]
    last = next(iter(steps), None)
    asked = next((one for one in steps if one.kind.value in ASKED), None)
    return [
        f"{MOVES[one.kind.value]} from replicas {_ids(one.replicas_before)} to {_ids(one.replicas_after)} at "
        f"{time_of(one.time_unix_ms)}{f', asked for by {one.who}' if one.who else ''}"
        f"{f' (trace {one.trace_id})' if one.trace_id else ''}."
        for one in dict.fromkeys((asked, last))
        if one is not None
    ]


def _not_known(events: "Sequence[ClusterEvent]") -> str:
    if not events:
        return "The event log has nothing of it: what happened is older than the log, or was not written down."
    oldest = time_of(events[-1].time_unix_ms)
    return f"The event log does not have how this leader epoch began; the oldest that was looked at is of {oldest}."


def _because(event: "ClusterEvent") -> str:
    because = BECAUSE.get(event.cause.value, event.cause.value)
    return f"{because} ({event.evidence})" if event.evidence else because


def _isr(event: "ClusterEvent") -> str:
    before, after = event.before, event.after
    if before is None or after is None:
        return ""
    return f"from {_ids(before.isr)} to {_ids(after.isr)}"


def _reason(event: "ClusterEvent") -> str:
    # What somebody asked for needs no other cause.
    cause = "" if event.cause.value == "unspecified" and (event.evidence or event.who) else event.cause.value
    words = ": ".join(part for part in (cause, event.evidence) if part)
    return "; ".join(part for part in (words, f"asked for by {event.who}" if event.who else "") if part)


def _subject(event: "ClusterEvent") -> str:
    if event.topic:
        return event.topic if event.partition is None else f"{event.topic}/{event.partition}"
    if event.broker is not None:
        return f"broker {event.broker}"
    return f"election {event.controller}" if event.kind.value == "controller-elected" else "cluster"


def _change(event: "ClusterEvent") -> str:
    before, after = event.before, event.after
    if event.replicas_after:
        return f"replicas {_ids(event.replicas_before)} > {_ids(event.replicas_after)}"
    if after is None:
        count = f"{event.count} partitions" if event.count else ""
        return ", ".join(part for part in (count, event.detail) if part)
    if before is None:
        return f"leader {_leader(after)} epoch {after.leader_epoch} isr {_ids(after.isr)}"
    parts: list[str] = []
    if before.leader != after.leader or before.leader_epoch != after.leader_epoch:
        parts.append(f"leader {_leader(before)} > {_leader(after)} epoch {before.leader_epoch} > {after.leader_epoch}")
    if before.isr != after.isr:
        parts.append(f"isr {_ids(before.isr)} > {_ids(after.isr)}")
    if after.elr:
        parts.append(f"elr {_ids(after.elr)}")
    return " ".join(parts)


def _leader(state: "EventState") -> str:
    return "none" if state.leader is None else str(state.leader)


def _ids(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids)) or "none"


def _state(state: "EventState | None") -> dict[str, Any] | None:
    if state is None:
        return None
    return {
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
        "elr": list(state.elr),
        "version": state.version,
    }
