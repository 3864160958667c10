"""When a broker may be emptied, and when one may be taken away."""

import pytest
from regnum_client.admin.reassignment.plan import PlannedMove, drain_plan
from regnum_client.admin.reassignment.removal import Emptiness, cannot_leave, on_fewer_racks, why_not_removed

EMPTY = {"known": True, "draining": True, "replicas": 0, "leaders": 0, "coming": 0}


def reasons(*, left: int = 3, factor: int = 3, **values: int) -> tuple[str, ...]:
    found = Emptiness(**{**EMPTY, **values})  # type: ignore[arg-type]
    return why_not_removed(7, found, left=range(left), default_replication_factor=factor)


def test_what_is_marked_and_empty_may_go() -> None:
    assert reasons() == ()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"replicas": 2}, "it has 2 replicas: `regnum brokers drain 7`"),
        ({"replicas": 2, "leaders": 1}, "1 of which it leads"),
        ({"coming": 1}, "1 reassignment brings replicas to it"),
        ({"draining": False}, "marks it first"),
        ({"known": False}, "broker 7 is unknown"),
        ({"replicas": 1}, "it has 1 replica: "),
        ({"coming": 2}, "2 reassignments bring replicas to it"),
        ({"left": 1}, "1 broker would be left and"),
        ({"left": 2}, "2 brokers would be left and default.replication.factor is 3"),
    ],
)
def test_what_stands_in_the_way_is_said_with_what_to_do(values: dict[str, int], said: str) -> None:
    (reason,) = reasons(**values)
    assert said in reason


def test_every_reason_is_said_at_once() -> None:
    assert len(reasons(replicas=1, coming=1, draining=False, left=0)) == 4


def test_a_partition_without_a_leader_keeps_its_broker_from_being_emptied_and_others_do_not() -> None:
    replicas = {("a", 0): (1, 2), ("a", 1): (1, 2), ("b", 0): (2, 3)}
    assert not cannot_leave(1, {("a", 0): 2, ("a", 1): 1, ("b", 0): -1}, replicas)
    assert "1 partition of broker 1 has no leader (a/1)" in cannot_leave(1, {("a", 0): 2}, replicas)
    many = {("a", number): (1,) for number in range(8)}
    assert "a/0, a/1, a/2, a/3, a/4 and 3 more" in cannot_leave(1, {}, many)


def test_a_plan_that_keeps_the_racks_is_let_pass_and_one_that_loses_one_is_not() -> None:
    racks = {1: "a", 2: "b", 3: "a", 4: "b"}
    partitions = {("t", 0): (1, 2)}
    assert not on_fewer_racks(drain_plan(partitions, racks, broker=1), racks), "broker 3 is in the same rack"
    without = {id: rack for id, rack in racks.items() if id != 3}
    assert "t/0" in on_fewer_racks(drain_plan(partitions, without, broker=1), without)
    assert not on_fewer_racks(drain_plan(partitions, {**without, 4: None}, broker=1), {**without, 4: None})


def test_a_broker_that_is_not_live_counts_as_a_rack_of_its_own() -> None:
    move = PlannedMove(topic="t", partition=0, before=(9, 2), after=(4, 2))
    assert "t/0" in on_fewer_racks([move], {2: "b", 4: "b"})
