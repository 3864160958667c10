"""What a group may grow to: it is one record, whatever its members bring, and a call costs what it is about."""

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from regnum_broker.groups.deadlines import SPARE, Deadlines
from regnum_broker.groups.decisions.joining import join
from regnum_broker.groups.decisions.membership import expire, sync
from regnum_broker.groups.decisions.offsets import CommittedOffset, OffsetLimits, Place, wrong_offsets
from regnum_broker.groups.decisions.state import (
    Again,
    Group,
    GroupError,
    GroupLimits,
    GroupState,
    Identity,
    Joined,
    JoinRequest,
    Refusal,
    Reply,
    Step,
    SyncRequest,
)
from regnum_broker.groups.offset_book import OffsetBook
from regnum_broker.groups.recorded.records import group_record

BATCH_BYTES_MAX = 16 * 1024 * 1024
"""What the internal topic takes as one batch."""
LIMITS = GroupLimits(initial_rebalance_delay_s=0.0)
FOUR_BYTES = "\U0001f600"


def request_of(number: int, **more: Any) -> JoinRequest:
    fields: dict[str, Any] = {
        "instance_id": f"i{number}",
        "session_timeout_s": 10.0,
        "rebalance_timeout_s": 20.0,
        "protocol_type": "consumer",
        "protocols": (("range", b"topics"),),
        "new_member_id": f"m{number}",
    }
    return JoinRequest(**{**fields, **more})


def joined(group: Group, request: JoinRequest, *, call: int = 1, now_s: float = 0.0) -> Step:
    return join(group, request, call=call, now_s=now_s, now_ms=0, limits=LIMITS)


def refusal_in(step: Step) -> Refusal | None:
    return next(
        (one.answer for one in step.effects if isinstance(one, Reply) and isinstance(one.answer, Refusal)), None
    )


def record_bytes(group: Group) -> int:
    record = group_record(group)
    return len(record.key or b"") + len(record.value or b"")


def test_the_record_of_a_group_fits_whatever_its_members_bring() -> None:
    group, number = Group(group_id=FOUR_BYTES * 255), 0
    names = {"instance_id": FOUR_BYTES * 250, "client_id": FOUR_BYTES * 255, "client_host": FOUR_BYTES * 255}
    while True:
        request = request_of(number, protocols=tuple((f"p{n}" + FOUR_BYTES * 60, b"x" * 16_000) for n in range(15)))
        names["instance_id"] = FOUR_BYTES * 250 + str(number)
        request = request_of(number, protocols=request.protocols, new_member_id=FOUR_BYTES * 100 + str(number), **names)
        step = joined(group, request)
        refused = refusal_in(step)
        if refused is not None:
            break
        group, number = step.group, number + 1
    assert refused.error is GroupError.GROUP_MAX_SIZE_REACHED
    assert step.group == group, "a refused call changes nothing"
    assert number > 10, "members of a quarter of a MiB each"
    group = expire(group, now_s=1_000.0, now_ms=0).group
    assert group.state is GroupState.COMPLETING_REBALANCE
    leader = Identity(
        member_id=group.leader, instance_id=group.members[group.leader].instance_id, generation=group.generation
    )
    size = LIMITS.assigned_bytes_max // len(group.members)
    assignments = tuple((id, b"y" * size) for id in group.members)
    group = sync(group, SyncRequest(identity=leader, assignments=assignments), call=2, now_s=0.0, limits=LIMITS).group
    assert group.state is GroupState.STABLE
    assert group.assigned_bytes > LIMITS.assigned_bytes_max // 2
    assert record_bytes(group) < BATCH_BYTES_MAX // 2 + 64 * 1024
    most = LIMITS.group_bytes_max + LIMITS.assigned_bytes_max
    assert most + record_bytes(group) - group.brought_bytes - group.assigned_bytes < BATCH_BYTES_MAX, "all come back"


def test_a_member_may_come_back_with_what_it_owns_to_a_group_that_takes_nobody_new() -> None:
    """By the cooperative protocol it names its topics once more (KIP-429); a refusal would end it, then the next."""
    topics, group, number = b"x" * (LIMITS.new_member_bytes_max - 4_096), Group(group_id="g"), 0
    while True:
        step = joined(group, request_of(number, protocols=(("cooperative-sticky", topics),)))
        if refusal_in(step) is not None:
            break
        group, number = step.group, number + 1
    for back in range(number):
        request = request_of(back, member_id=f"m{back}", protocols=(("cooperative-sticky", 2 * topics),))
        step = joined(group, request, call=100 + back)
        assert refusal_in(step) is None
        group = step.group
    assert group.brought_bytes > LIMITS.new_group_bytes_max
    more = request_of(0, member_id="m0", protocols=(("cooperative-sticky", 3 * topics),))
    refused = refusal_in(joined(group, more))
    assert refused is not None
    assert refused.error is GroupError.INVALID_REQUEST


def test_a_thousand_members_with_the_longest_names_fit() -> None:
    group = Group(group_id="g")
    for number in range(1_000):
        names = {"instance_id": FOUR_BYTES * 251 + str(number), "client_id": FOUR_BYTES * 255}
        group = joined(group, request_of(number, new_member_id=FOUR_BYTES * 100 + str(number), **names)).group
    assert len(group.members) == 1_000
    assert refusal_in(joined(group, request_of(1_000))) is not None
    assert record_bytes(group) <= group.brought_bytes + 4_096 < BATCH_BYTES_MAX // 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"protocols": ((FOUR_BYTES * 64, b""),)},
        {"protocols": ((FOUR_BYTES * 65_000, b""),)},
        {"protocol_type": FOUR_BYTES * 64},
        {"protocols": tuple((f"p{number}", b"") for number in range(17))},
        {"protocols": (("range", b"x" * LIMITS.new_member_bytes_max),)},
    ],
)
def test_what_a_member_may_not_bring_is_counted_in_bytes(wrong: dict[str, Any]) -> None:
    group = joined(Group(group_id="g"), request_of(0)).group
    step = joined(group, request_of(1, **wrong))
    refused = refusal_in(step)
    assert refused is not None
    assert refused.error is GroupError.INVALID_REQUEST
    assert step.group == group


def test_an_id_that_is_not_used_is_counted_and_forgotten_in_time() -> None:
    group = Group(group_id="g")
    for number in range(LIMITS.members_max):
        step = joined(group, request_of(number, instance_id="", session_timeout_s=1_800.0))
        group = step.group
        assert step.effects == (Reply(1, Again(f"m{number}")),)
    refused = refusal_in(joined(group, request_of(-1, instance_id="")))
    assert refused is not None
    assert refused.error is GroupError.GROUP_MAX_SIZE_REACHED
    assert refusal_in(joined(group, request_of(7, instance_id="", member_id="m7"))) is None, "a given id may be used"
    group = expire(group, now_s=LIMITS.pending_s_max, now_ms=0).group
    assert not group.pending, "whatever session time-out the callers had named"


def steps_of(what: Callable[[], object]) -> int:
    """Calls of functions, builtin ones and turns of generators included."""
    count = 0

    def counting(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(counting)
    try:
        what()
    finally:
        sys.setprofile(None)
    return count


def test_a_join_costs_the_same_in_a_group_of_ten_and_of_a_thousand() -> None:
    def cost(members: int) -> int:
        group = Group(group_id="g")
        for number in range(members):
            group = joined(group, request_of(number), call=number + 1).group
        # A rebalance is being prepared: all but the first come meanwhile, and are held.
        assert group.state in {GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE}
        steps = [steps_of(lambda: joined(group, request_of(members), call=members + 1))]
        again = request_of(members // 2, member_id=f"m{members // 2}")
        steps.append(steps_of(lambda: joined(group, again, call=members + 2)))
        return max(steps)

    few, many = cost(10), cost(900)
    assert many <= few + 60, "a tree of 900 is a little deeper than one of 10"


def test_deadlines_take_room_for_what_waits_only() -> None:
    deadlines = Deadlines()
    deadlines.bring_forward("stays", 5.0)
    for number in range(10_000):
        deadlines.bring_forward(f"g{number}", 1_800.0)
        deadlines.forget(f"g{number}")
        deadlines.bring_forward("moves", 10_000.0 - number)
    assert len(deadlines) <= SPARE + 6
    assert deadlines.take_due(4.0) == ["moves"]
    assert deadlines.take_due(5.0) == ["stays"]
    assert deadlines.take_due(1e9) == []


def entry(offset: int = 1, note: str = "") -> CommittedOffset:
    return CommittedOffset(offset=offset, metadata=note, committed_ms=0)


def test_offsets_on_their_way_count_and_known_ones_may_always_be_overwritten() -> None:
    limits, book = OffsetLimits(offsets_max=4), OffsetBook()

    def refused(*numbers: int) -> bool:
        offsets = [(Place("t", number), entry()) for number in numbers]
        new, count = book.count_with("g", {place for place, _ in offsets})
        return wrong_offsets(offsets, new=new, count=count, limits=limits) is not None

    for number in range(3):
        book.put("g", Place("t", number), entry())
    book.begin("g", [Place("t", 3)])
    assert refused(4), "one is on its way"
    assert not refused(0, 3)
    book.put("g", Place("t", 3), entry())
    book.done("g", [Place("t", 3)])
    book.put("g", Place("t", 4), entry())
    assert not refused(0, 4), "more than the limit, from before it was lowered"
    assert refused(5)
    assert refused(0, 1, 2, 3, 4), "one commit never has more"
    book.forget("g", Place("t", 4))
    book.forget("g", Place("t", 3))
    assert not refused(5)
    assert book.growth("g", [(Place("t", 0), entry(9))]) == 0
    assert book.growth("g", [(Place("t", 0), entry(9, "note"))]) == 4
    for number in range(3):
        book.forget("g", Place("t", number))
    assert (book.size_bytes, book.by_group) == (0, {})


FACE = FOUR_BYTES * 200
ID = "{:022d}"


@pytest.mark.parametrize(
    "texts", [("t", ID, ""), (FACE + "{}", "", ""), ("t{}", ID, FACE + "{}"), ("a" * 240 + "{}", ID, "")]
)
def test_offsets_count_for_what_they_take_whatever_their_texts(texts: tuple[str, str, str]) -> None:
    count, book = 2_000, OffsetBook()
    tracemalloc.start()
    try:
        for number in range(count):
            topic, id, note = (text.format(number) for text in texts)
            offset = CommittedOffset(offset=number, committed_ms=10**12 + number, metadata=note, topic_id=id)
            book.put("g", Place(topic, 10**6 + number), offset)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.7 * taken < book.size_bytes < 1.5 * taken
    for place in tuple(book.of("g")):
        book.forget("g", place)
    assert book.size_bytes == 0


def test_a_static_member_that_comes_back_just_before_the_deadline_keeps_its_place() -> None:
    group = joined(Group(group_id="g"), request_of(0, instance_id="", member_id="", session_timeout_s=60.0)).group
    group = joined(group, request_of(0, instance_id="", member_id="m0", session_timeout_s=60.0)).group
    group = joined(group, request_of(1, session_timeout_s=60.0), now_s=1.0).group
    group = joined(group, request_of(0, instance_id="", member_id="m0", session_timeout_s=60.0), now_s=2.0).group
    assert (group.state, group.leader) == (GroupState.COMPLETING_REBALANCE, "m0")
    identity = Identity(member_id="m0", generation=group.generation)
    group = sync(group, SyncRequest(identity=identity), call=5, now_s=3.0, limits=LIMITS).group
    assert group.rebalance_deadline_s == 22.0, "m1 has not asked for its assignment"
    step = joined(group, request_of(1, session_timeout_s=60.0, new_member_id="again"), now_s=21.9)
    answer = step.effects[-1]
    assert isinstance(answer, Reply)
    assert isinstance(answer.answer, Joined)
    group = expire(step.group, now_s=22.1, now_ms=0).group
    assert set(group.members) == {"m0", "again"}, "its session has just begun"
    assert group.generation == identity.generation
    assert set(expire(group, now_s=82.0, now_ms=0).group.members) == set()
