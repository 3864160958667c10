"""Writes that a safety rule forbids are found where they are made, and those that it allows are not."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from regnum_coordination.port import Check, Create, Delete, Group, Node, Set, Stat
from regnum_model import paths
from regnum_model.ids import BrokerId, ControllerEpoch, DirectoryId, LeaderEpoch, LogId, Registration, TopicId
from regnum_model.nodes import Address, BrokerNode, LeaderAndIsr, Membership
from regnum_testing.simulation.judging.writes import StoreWrite, Writes

PATH = paths.leader_and_isr("t", 0)
TOPIC = TopicId("A" * 22)
IDS = (1, 2, 3)


def member(id: int, log: str = "") -> Membership:
    return Membership(broker_epoch=10 + id, log_id=LogId(log or f"log-{id}"))  # type: ignore[arg-type]


def state(
    leader: int = 1,
    epoch: int = 4,
    isr: tuple[int, ...] = IDS,
    elr: tuple[int, ...] = (),
    members: Mapping[int, Membership] | None = None,
) -> LeaderAndIsr:
    named = members or {id: member(id) for id in (*isr, *elr)}
    return LeaderAndIsr(
        topic_id=TOPIC,
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(epoch),
        isr=tuple(map(BrokerId, isr)),
        elr=tuple(map(BrokerId, elr)),
        members={BrokerId(id): one for id, one in named.items()},
        controller_epoch=ControllerEpoch(1),
    )


def node(data: bytes, *, version: int = 0, creation_id: int = 1, owner: int | None = None) -> Node:
    stat = Stat(creation_id=creation_id, modification_id=1, version=version, children_id=1, ephemeral_owner=owner)
    return Node(data=data, stat=stat)


def registration(id: int, log: str = "") -> Node:
    content = BrokerNode(
        incarnation="i",
        registration=Registration(5),
        rack=None,
        directories={DirectoryId("d"): LogId(log or f"log-{id}")},
        listeners={name: Address(host="h", port=1) for name in ("client", "internal")},
    )
    return node(content.encode(), creation_id=10 + id, owner=100 + id)


def store() -> dict[str, Node]:
    registered = {paths.broker_id(BrokerId(id)): registration(id) for id in IDS}
    guards = {paths.broker_epoch(BrokerId(id)): node(b"", version=5) for id in IDS}
    return {**registered, **guards, paths.topic_id(TOPIC): node(b""), paths.CONTROLLER_EPOCH: node(b"1")}


def judged(
    writer: str,
    group: Group,
    *,
    before: Mapping[str, Node | None],
    now: Mapping[str, Node],
    writes: Writes | None = None,
    alive: bool = True,
    at_s: float = 0.0,
) -> str:
    judge = writes or Writes(session_timeout_s=6.0, reigns={"election-1": b"1"})
    write = StoreWrite(
        writer=writer,
        session_alive=alive,
        at_s=at_s,
        group=group,
        before=before,
        read=now.get,
        is_reachable=lambda _: True,
    )
    return " ".join(judge.judged(write))


def of_state(
    writer: str, before: LeaderAndIsr | None, after: LeaderAndIsr, now: Mapping[str, Node] | None = None
) -> str:
    found = None if before is None else node(before.encode())
    return judged(writer, (Set(PATH, after.encode(), 0),), before={PATH: found}, now=store() if now is None else now)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (state(), state(leader=2, epoch=5, isr=(2, 3))),
        (state(isr=(1,), elr=(2,)), state(leader=2, epoch=5, isr=(2,))),
        (state(), state(leader=-1, epoch=5)),
        (None, state(epoch=0)),
    ],
)
def test_elections_that_the_rules_allow(before: LeaderAndIsr | None, after: LeaderAndIsr) -> None:
    assert of_state("election-1", before, after) == ""


@pytest.mark.parametrize(
    ("after", "says"),
    [
        (state(leader=2, epoch=4, isr=(2, 3)), "S10: leader 2 in the epoch of leader 1"),
        (state(leader=3, epoch=5, isr=(3,)), "S10: leader 3 is neither in ISR (1, 2) nor in ELR ()"),
        (state(leader=2, epoch=5, isr=(2,), members={2: member(2, "other")}), "S10: leader 2 with another log"),
        (state(leader=1, epoch=3, isr=(1, 2)), "S10: leader epoch 3 after 4"),
        (replace(state(epoch=5), topic_id=TopicId("B" * 22)), "S2: a state of another topic"),
    ],
)
def test_elections_that_they_forbid(after: LeaderAndIsr, says: str) -> None:
    assert says in of_state("election-1", state(isr=(1, 2)), after)


def test_a_reign_that_is_over_writes_nothing() -> None:
    now = {**store(), paths.CONTROLLER_EPOCH: node(b"2")}
    assert "S3: a state of a reign that is over" in of_state("election-1", state(), state(leader=2, epoch=5), now)


def test_a_leader_changes_its_isr_and_nothing_else() -> None:
    assert of_state("broker-1", state(isr=(1, 2)), state()) == ""
    assert "S3: an ISR of a broker that does not lead" in of_state("broker-2", state(), state(isr=(1, 2)))
    gone = {path: one for path, one in store().items() if path != paths.topic_id(TOPIC)}
    assert "S3: an ISR of a topic that is gone" in of_state("broker-1", state(isr=(1, 2)), state(), gone)
    other = {**store(), paths.broker_id(BrokerId(3)): registration(3, "other")}
    assert "S3: member 3 is not registered" in of_state("broker-1", state(isr=(1, 2)), state(), other)


def test_a_state_that_is_gone_begins_in_no_epoch_that_was() -> None:
    writes = Writes(session_timeout_s=6.0, reigns={"election-1": b"1"})
    for after, says in ((state(epoch=4), ""), (state(epoch=0), "S14, T9: leader epoch 0 begins again")):
        group = (Create(PATH, after.encode()),)
        assert says in judged("election-1", group, before={PATH: None}, now=store(), writes=writes)


def test_fences_take_their_guard_along_and_are_few() -> None:
    path, guard = paths.broker_id(BrokerId(2)), paths.broker_epoch(BrokerId(2))
    group, before = (Set(guard, b"", 5), Delete(path, 0)), {path: registration(2), guard: node(b"", version=5)}
    fenced = {**store(), guard: node(b"", version=6)}
    writes = Writes(session_timeout_s=6.0)
    assert judged("election-1", group, before=before, now=fenced, writes=writes) == ""
    assert "S9" in judged("election-1", group, before=before, now=fenced, writes=writes, at_s=5.0)
    assert judged("election-1", group, before=before, now=fenced, writes=writes, at_s=12.0) == ""
    assert "S2" in judged("election-1", (Check(guard, 5), Delete(path, 0)), before=before, now=store())
    assert judged("broker-2", (Check(guard, 5), Delete(path, 0)), before=before, now=store()) == ""


@pytest.mark.parametrize(("sent_s", "says"), [(6.0, ""), (5.0, "S9")])
def test_what_counts_of_a_fence_is_when_it_was_sent(sent_s: float, says: str) -> None:
    path, guard = paths.broker_id(BrokerId(2)), paths.broker_epoch(BrokerId(2))
    group, before = (Set(guard, b"", 5), Delete(path, 0)), {path: registration(2), guard: node(b"", version=5)}
    fenced = {**store(), guard: node(b"", version=6)}
    writes = Writes(session_timeout_s=6.0)
    for at_s, carried_out_s in ((0.0, 2.0), (sent_s, sent_s + 0.01)):
        writes.sent("election-1", group, at_s)
        # Sent again, as no answer came to it: it is the same fence.
        writes.answered("election-1", group, known=False)
        writes.sent("election-1", group, at_s + 0.5)
        found = judged("election-1", group, before=before, now=fenced, writes=writes, at_s=carried_out_s)
        writes.answered("election-1", group, known=True)
    assert says == found.partition(":")[0]


def test_a_session_that_is_over_writes_nothing() -> None:
    assert "S6" in judged("broker-1", (Check("/a"),), before={"/a": node(b"")}, now={}, alive=False)


def test_a_write_without_an_answer_is_settled_by_itself() -> None:
    writes = Writes(session_timeout_s=6.0)
    first, other = ((Set(PATH, one.encode(), 3),) for one in (state(isr=(1, 2)), state(isr=(1,))))
    assert writes.sent("broker-1", first, 0.0) == []
    writes.answered("broker-1", first, known=False)
    assert writes.sent("broker-1", first, 0.0) == []
    assert "S1: broker-1 writes" in writes.sent("broker-1", other, 0.0)[0]
    assert writes.sent("broker-2", other, 0.0) == []
    writes.answered("broker-1", first, known=True)
    assert writes.sent("broker-1", other, 0.0) == []
