"""How a partition's ISR and eligible replicas change together.

The controller and the leaders write the same node, so both use this one rule (safety rules S3 and S10; KIP-966).

Rule: a write that leaves fewer than min.insync.replicas members in the ISR keeps the removed members, and those that
were eligible before, as eligible replicas: they hold everything below the high watermark, which stands still meanwhile.
A write that leaves enough members empties the list, except one that elects: who is elected has not said yet that it
leads, so what was eligible before stays so until a leader stands. ``members`` records exactly isr and elr.

While the list is not empty nothing is committed, however many members the ISR has: min.insync.replicas may have been
lowered since, or the writer and the leader may know different values, and whoever is eligible holds exactly what was
committed before. So the list is emptied in the store first, and only then the high watermark moves.

Example: min.insync 2, isr [1, 2], elr []. 1 dies: isr [2], elr [1]. 2 loses its log: 1, once back, may lead. Had 3
joined first (isr [2, 3]), elr would be empty again, because records may have been committed without 1. Min.insync 3,
isr [1, 2], elr [3], and now min.insync becomes 2: nothing is committed until elr has been emptied.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from regnum_model.ids import BrokerId
from regnum_model.nodes import LeaderAndIsr, Membership


def effective_min_insync(configured: int, replication_factor: int) -> int:
    """min.insync.replicas as it applies: never above the replication factor, never below one."""
    return max(1, min(configured, replication_factor))


def may_commit(state: LeaderAndIsr, *, min_insync: int) -> bool:
    """Whether the high watermark may move under this state, as far as its node says (safety rule S10)."""
    return len(state.isr) >= min_insync and not state.elr


def may_let_go(state: LeaderAndIsr, *, min_insync: int) -> bool:
    """Whether nothing but its eligible replicas holds commits up: the ISR is sufficient without them."""
    return bool(state.elr) and len(state.isr) >= min_insync


def with_isr(
    state: LeaderAndIsr,
    isr: Sequence[BrokerId],
    *,
    min_insync: int,
    joining: Mapping[BrokerId, Membership] | None = None,
    keep_eligible: bool = False,
) -> LeaderAndIsr:
    """The state with another ISR; leader, epochs and topic id stay.

    Args:
        state: what the node holds now.
        isr: the new ISR, in the order to be written; not empty.
        min_insync: effective min.insync.replicas.
        joining: log of each broker that was not in ``state.isr``, or whose record is renewed; taken from the live
            registration that the write checks (safety rule S3).
        keep_eligible: whether a list that is not empty stays, with those that are removed now, though the ISR is
            sufficient; for a write that elects.

    Raises:
        ValueError: the ISR is empty, or a joining member has no log.
    """
    if not isr:
        raise ValueError("an ISR is never empty")
    known = {**state.members, **(joining or {})}
    if unknown := [id for id in isr if id not in state.isr and id not in (joining or {})]:
        raise ValueError(f"no registration given for joining members {unknown}")
    elr: tuple[BrokerId, ...] = ()
    if len(isr) < min_insync or (keep_eligible and state.elr):
        candidates = (*state.isr, *state.elr)
        elr = tuple(id for id in dict.fromkeys(candidates) if id not in isr)
    members = {id: known[id] for id in (*isr, *elr)}
    return replace(state, isr=tuple(isr), elr=elr, members=members)
