"""How a partition's ISR and eligible replicas change together.

The controller and the leaders write the same node, so both use this one rule (safety rules S3 and S10; KIP-966).

Rule: a write that leaves fewer than min.insync.replicas members in the ISR keeps the removed members, and those that
were eligible before, as eligible replicas: they hold everything below the high watermark, which stands still meanwhile.
A write that leaves enough members empties the list. ``members`` records exactly isr and elr.

Example: min.insync 2, isr [1, 2], elr []. 1 dies: isr [2], elr [1]. 2 loses its log: 1, once back, may lead. Had 3
joined first (isr [2, 3]), elr would be empty again, because records may have been committed without 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from regnum_model.ids import BrokerId
from regnum_model.nodes import LeaderAndIsr, Membership


def effective_min_insync(configured: int, replication_factor: int) -> int:
    """min.insync.replicas as it applies: never above the replication factor, never below one."""
    return max(1, min(configured, replication_factor))


def with_isr(
    state: LeaderAndIsr,
    isr: Sequence[BrokerId],
    *,
    min_insync: int,
    joining: Mapping[BrokerId, Membership] | None = None,
) -> LeaderAndIsr:
    """The state with another ISR; leader, epochs and topic id stay.

    Args:
        state: what the node holds now.
        isr: the new ISR, in the order to be written; not empty.
        min_insync: effective min.insync.replicas.
        joining: log of each broker that was not in ``state.isr``, or whose record is renewed; taken from the live
            registration that the write checks (safety rule S3).

    Raises:
        ValueError: the ISR is empty, or a joining member has no log.
    """
    if not isr:
        raise ValueError("an ISR is never empty")
    known = {**state.members, **(joining or {})}
    if unknown := [id for id in isr if id not in state.isr and id not in (joining or {})]:
        raise ValueError(f"no registration given for joining members {unknown}")
    elr: tuple[BrokerId, ...] = ()
    if len(isr) < min_insync:
        candidates = (*state.isr, *state.elr)
        elr = tuple(id for id in dict.fromkeys(candidates) if id not in isr)
    members = {id: known[id] for id in (*isr, *elr)}
    return replace(state, isr=tuple(isr), elr=elr, members=members)
