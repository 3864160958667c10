"""The table of safety rule S14, row by row."""

import json

import pytest
from regnum_election.decisions.topic_nodes import Accepted, FoundNode, Refused, judge_topic
from regnum_model.ids import ControllerEpoch, TopicId
from regnum_testing.election_values import TOPIC_ID, state

MINTED = TopicId("M" * 22)
OTHER = TopicId("O" * 22)
REIGN = ControllerEpoch(1)
STATE = FoundNode(data=state(1, [1, 2]).encode(), version=3)


def node(*, id: str | None = None, partitions: int = 1, creating: tuple[int, ...] = ()) -> FoundNode:
    content: dict[str, object] = {"version": 1, "partitions": {str(n): [1, 2] for n in range(partitions)}}
    if id is not None:
        content["topic_id"] = id
    if creating:
        content["creating"] = creating
    return FoundNode(data=json.dumps(content).encode(), version=5)


def judge(
    found: FoundNode,
    states: dict[int, FoundNode] | None = None,
    guards: dict[TopicId, str] | None = None,
    name: str = "t",
) -> Accepted | Refused:
    return judge_topic(name, found, states or {}, guards or {}, minted=MINTED, reign=REIGN)


def accepted(verdict: Accepted | Refused) -> Accepted:
    assert isinstance(verdict, Accepted), verdict
    return verdict


def test_whole_topic() -> None:
    verdict = accepted(judge(node(id=TOPIC_ID), {0: STATE}, {TOPIC_ID: "t"}))
    assert not verdict.rewrite
    assert not verdict.make_guard
    held = verdict.partitions[0].held
    assert held is not None
    assert held.version == 3


def test_new_topic_gets_an_id_and_marks() -> None:
    for found in (node(partitions=2), FoundNode(data=b'{"0":[1,2],"1":[1,2]}', version=0)):
        verdict = accepted(judge(found))
        assert verdict.topic_id == MINTED
        assert verdict.rewrite
        assert verdict.make_guard
        assert verdict.node.creating == {0, 1}
        assert all(partition.creating for partition in verdict.partitions.values())


@pytest.mark.parametrize("creating", [(), (0,)])
def test_an_id_that_nothing_around_it_knows_was_restored_and_is_never_made_anew(creating: tuple[int, ...]) -> None:
    verdict = accepted(judge(node(id=TOPIC_ID, creating=creating)))
    assert verdict.topic_id == TOPIC_ID
    assert not verdict.make_guard
    assert not verdict.rewrite
    assert not verdict.partitions[0].creating
    assert "regnum partitions recover" in (verdict.partitions[0].trouble or "")


def test_id_with_states_and_no_guard_is_trouble() -> None:
    verdict = accepted(judge(node(id=TOPIC_ID), {0: STATE}))
    assert not verdict.make_guard
    assert "guard" in (verdict.partitions[0].trouble or "")


def test_id_of_another_topic_is_refused() -> None:
    assert isinstance(judge(node(id=TOPIC_ID), {}, {TOPIC_ID: "other"}), Refused)


def test_lost_id_is_restored_from_the_states() -> None:
    verdict = accepted(judge(node(), {0: STATE}, {TOPIC_ID: "t"}))
    assert verdict.topic_id == TOPIC_ID
    assert verdict.rewrite
    assert not verdict.make_guard
    assert verdict.partitions[0].held is not None


def test_lost_id_without_a_guard_is_refused() -> None:
    assert isinstance(judge(node(), {0: STATE}), Refused)


def test_lost_id_with_states_that_disagree_is_refused() -> None:
    foreign = FoundNode(data=state(1, [1]).encode().replace(TOPIC_ID.encode(), OTHER.encode()), version=0)
    guards = {TOPIC_ID: "t", OTHER: "t"}
    assert isinstance(judge(node(partitions=2), {0: STATE, 1: foreign}, guards), Refused)
    unreadable = FoundNode(data=b"?", version=0)
    assert isinstance(judge(node(partitions=2), {0: STATE, 1: unreadable}, guards), Refused)


def test_missing_state_is_new_only_when_marked() -> None:
    marked = accepted(judge(node(id=TOPIC_ID, creating=(0,)), {}, {TOPIC_ID: "t"}))
    assert marked.partitions[0].creating
    unmarked = accepted(judge(node(id=TOPIC_ID), {}, {TOPIC_ID: "t"}))
    assert not unmarked.partitions[0].creating
    assert "missing" in (unmarked.partitions[0].trouble or "")


@pytest.mark.parametrize("data", [b"", b"\xff", b"{}", b'{"version":1}', state(1, [1]).encode()[:-1]])
def test_unreadable_state_is_trouble_even_when_marked(data: bytes) -> None:
    verdict = accepted(judge(node(id=TOPIC_ID, creating=(0,)), {0: FoundNode(data=data, version=0)}, {TOPIC_ID: "t"}))
    assert verdict.partitions[0].trouble is not None
    assert verdict.partitions[0].held is None


def test_state_of_another_life_is_trouble() -> None:
    verdict = accepted(judge(node(id=OTHER), {0: STATE}, {OTHER: "t"}))
    assert "belongs to" in (verdict.partitions[0].trouble or "")


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b'{"0":[]}', b'{"0":[1,1]}', b'{"x":[1]}', b"\x00"])
def test_unreadable_topic_node_is_refused_with_a_reason(data: bytes) -> None:
    verdict = judge(FoundNode(data=data, version=0))
    assert isinstance(verdict, Refused)
    assert verdict.reason


@pytest.mark.parametrize(
    ("data", "misses"),
    [
        (b'{"1":[1,2,3]}', "up to 1 and misses [0]"),
        (b'{"version":1,"partitions":{"0":[1],"99999":[2]}}', "up to 99999 and misses [1, 2, 3, 4, 5]"),
    ],
)
def test_a_new_topic_with_a_gap_in_its_numbers_is_refused_with_those_it_misses(data: bytes, misses: str) -> None:
    verdict = judge(FoundNode(data=data, version=0))
    assert isinstance(verdict, Refused)
    assert misses in verdict.reason


def test_a_topic_that_may_have_records_is_accepted_whatever_numbers_its_node_misses() -> None:
    for content in ({"topic_id": TOPIC_ID, "partitions": {"1": [1, 2]}}, {"1": [1, 2]}):
        found = FoundNode(data=json.dumps(content).encode(), version=5)
        verdict = accepted(judge(found, {1: STATE}, {TOPIC_ID: "t"}))
        assert verdict.topic_id == TOPIC_ID
        assert verdict.partitions[1].held is not None


def test_illegal_name_is_refused() -> None:
    assert isinstance(judge(node(), name="no spaces allowed"), Refused)
