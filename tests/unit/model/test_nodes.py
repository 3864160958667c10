"""Store contents: what we write can be read back; what people write is either understood or refused with a reason."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_model import nodes
from regnum_model.ids import (
    NO_LEADER,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    DirectoryId,
    ElectionId,
    LeaderEpoch,
    LogId,
    Registration,
    TopicId,
)
from regnum_model.reassignment import Reassignment

TOPIC_ID = TopicId("A" * 22)

STATE = nodes.LeaderAndIsr(
    topic_id=TOPIC_ID,
    leader=BrokerId(1),
    leader_epoch=LeaderEpoch(4),
    isr=(BrokerId(1), BrokerId(2)),
    elr=(BrokerId(3),),
    members={
        BrokerId(id): nodes.Membership(broker_epoch=BrokerEpoch(10 + id), log_id=LogId(f"log-{id}")) for id in (1, 2, 3)
    },
    controller_epoch=ControllerEpoch(2),
)
BROKER = nodes.BrokerNode(
    incarnation="i",
    registration=Registration(4),
    rack=None,
    directories={DirectoryId("d"): LogId("l")},
    listeners={
        "client": nodes.Address(host="127.0.0.1", port=1),
        "internal": nodes.Address(host="h.example", port=65535),
    },
)
TOPIC = nodes.TopicNode(
    topic_id=TOPIC_ID,
    partitions={0: (BrokerId(1), BrokerId(2)), 10: (BrokerId(2),)},
    creating=frozenset({10}),
    mutation="m-1",
)
SAMPLES = [
    nodes.ControllerNode(election_id=ElectionId(3), timestamp="1593330804078"),
    nodes.TopicIdNode(topic="t"),
    nodes.TopicIdNode(
        topic="t",
        accepted=nodes.AcceptedAssignment(
            partitions={0: (BrokerId(1),), 1: (BrokerId(2), BrokerId(1))},
            reassigning={0: Reassignment(origin=(BrokerId(1),), target=(BrokerId(2),), since_ms=5)},
        ),
    ),
    nodes.DeletionNode(topic="t", brokers=frozenset({BrokerId(1), BrokerId(9)}), mutation="x"),
    nodes.ProducerIdBlockNode(first=1000, count=1000),
    nodes.ElectionNode(
        incarnation="i",
        listeners={name: nodes.Address(host="::1", port=9) for name in ("client", "internal", "lifeline")},
    ),
    STATE,
    BROKER,
    TOPIC,
]


@pytest.mark.parametrize("node", SAMPLES, ids=lambda node: type(node).__name__)
def test_what_is_written_is_read_back(node: nodes.BrokerNode) -> None:
    assert type(node).decode(node.encode()) == node


def test_the_controller_node_is_the_json_of_seed_002() -> None:
    node = nodes.ControllerNode(election_id=ElectionId(0), timestamp="1593330804078")
    assert node.encode() == b'{"version":1,"brokerid":0,"timestamp":"1593330804078"}'


def test_a_person_may_ask_for_an_election_with_minus_one() -> None:
    assert nodes.ControllerNode.decode(b'{"version":1,"brokerid":-1}').election_id == -1


def test_a_bare_assignment_of_seed_001_is_a_topic_without_an_id() -> None:
    node = nodes.TopicNode.decode(b'{"0":[1,2,3],"1":[2,3,1]}')
    assert node.topic_id is None
    assert node.partitions == {0: (1, 2, 3), 1: (2, 3, 1)}
    assert not node.creating


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "JSON"),
        (b"\xff\xfe", "JSON"),
        (b"[" * 100_000, "JSON"),
        (b"[]", "object"),
        (b"{}", "1 to"),
        (b'{"partitions":{}}', "1 to"),
        (b'{"partitions":{"0":[]}}', "no replicas"),
        (b'{"partitions":{"0":[1,1]}}', "twice"),
        (b'{"partitions":{"0":[-1]}}', "broker id"),
        (b'{"partitions":{"0":[true]}}', "broker id"),
        (b'{"partitions":{"-1":[1]}}', "plain number"),
        (b'{"partitions":{"00":[1]}}', "plain number"),
        (b'{"partitions":{"9999999":[1]}}', "plain number"),
        (b'{"topic_id":"../../x","partitions":{"0":[1]}}', "topic_id"),
        (b'{"topic_id":7,"partitions":{"0":[1]}}', "topic_id"),
        (b'{"partitions":{"0":[1]},"creating":"0"}', "creating"),
    ],
)
def test_malformed_topic_nodes_say_what_is_wrong(content: bytes, says: str) -> None:
    with pytest.raises(nodes.MalformedNodeError, match=says):
        nodes.TopicNode.decode(content)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"isr": []}, "empty"),
        ({"isr": [1, 2, 3]}, "isr and in elr"),
        ({"leader": 9}, "not in isr"),
        ({"members": {}}, "members lacks"),
        ({"members": {"1": [1], "2": [1, "x"], "3": [1, "x"]}}, "broker epoch, log id"),
        ({"leader_epoch": 2**31}, "leader_epoch"),
        ({"leader_epoch": 1.5}, "leader_epoch"),
        ({"topic_id": None}, "topic_id"),
    ],
)
def test_malformed_states_say_what_is_wrong(change: dict[str, object], says: str) -> None:
    content = json.loads(STATE.encode()) | change
    with pytest.raises(nodes.MalformedNodeError, match=says):
        nodes.LeaderAndIsr.decode(json.dumps(content).encode())


def test_a_state_without_leader_keeps_its_isr() -> None:
    content = json.loads(STATE.encode()) | {"leader": -1}
    assert nodes.LeaderAndIsr.decode(json.dumps(content).encode()).isr == (1, 2)


@pytest.mark.parametrize("text", ["", "h", ":1", "h:", "h:0", "h:65536", "h:x", "h:²"])
def test_bad_addresses_are_refused(text: str) -> None:
    with pytest.raises(nodes.MalformedNodeError, match="host:port"):
        nodes.Address.parse(text)


@pytest.mark.parametrize("text", [b"1", b" 12\n", b"999999999"])
def test_controller_epochs_are_plain_text(text: bytes) -> None:
    assert nodes.decode_controller_epoch(text) == int(text)


@pytest.mark.parametrize("text", [b"", b"-1", b"1.0", b"x", b"1234567890", "²".encode(), b"\xff"])
def test_other_controller_epochs_are_refused(text: bytes) -> None:
    with pytest.raises(nodes.MalformedNodeError):
        nodes.decode_controller_epoch(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
FIELDS = ("brokerid", "partitions", "topic_id", "isr", "elr", "members", "listeners", "directories", "topic", "brokers")
CONTENT = st.binary(max_size=64) | JSON.map(lambda value: json.dumps(value).encode())
NODE_LIKE = st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=8).map(lambda value: json.dumps(value).encode())


@given(CONTENT | NODE_LIKE)
def test_no_content_raises_anything_but_malformed_node(content: bytes) -> None:
    kinds = {type(sample) for sample in SAMPLES}
    for kind in kinds:
        try:
            decoded = kind.decode(content)
        except nodes.MalformedNodeError:
            continue
        assert isinstance(decoded, kind)


@pytest.mark.parametrize("content", [b'{"version":' + b"9" * 5_000 + b"}", b"[" * 100_000], ids=["number", "depth"])
@pytest.mark.parametrize("kind", sorted({type(sample) for sample in SAMPLES}, key=lambda kind: kind.__name__))
def test_what_python_does_not_read_is_malformed_and_stops_nobody(kind, content: bytes) -> None:
    with pytest.raises(nodes.MalformedNodeError, match="not JSON"):
        kind.decode(content)


def test_text_that_no_message_can_carry_is_malformed() -> None:
    with pytest.raises(nodes.MalformedNodeError, match="lone surrogate"):
        nodes.TopicIdNode.decode(b'{"version":1,"topic":"\\ud800"}')
    assert nodes.TopicIdNode.decode(b'{"version":1,"topic":"\\ud83d\\ude00"}').topic == "\U0001f600"


def test_a_topic_node_names_partitions_that_are_being_removed_and_the_last_changes() -> None:
    node = nodes.TopicNode(
        topic_id=TopicId("A" * 22),
        partitions={0: (BrokerId(1), BrokerId(2))},
        removing={1: (BrokerId(2),), 2: ()},
        partition_mutations=("a", "b"),
    )
    assert nodes.TopicNode.decode(node.encode()) == node
    plain = nodes.TopicNode(topic_id=TopicId("A" * 22), partitions={0: (BrokerId(1),)})
    assert b"removing" not in plain.encode()
    assert b"partition_mutations" not in plain.encode()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"removing": []}, "removing is not a JSON object"),
        ({"removing": {"0": [1]}}, "stand in partitions and in removing"),
        ({"removing": {"x": [1]}}, "removed partition 'x'"),
        ({"removing": {"1": "1"}}, "not a list of broker ids"),
        ({"partition_mutations": "a"}, "not a short list"),
        ({"partition_mutations": [1]}, "not a short string"),
    ],
)
def test_malformed_removals_say_what_is_wrong(change: dict[str, object], says: str) -> None:
    content = {"version": 1, "topic_id": "A" * 22, "partitions": {"0": [1]}, **change}
    with pytest.raises(nodes.MalformedNodeError, match=says):
        nodes.TopicNode.decode(json.dumps(content).encode())


def test_a_tombstone_has_nobody_in_it_and_no_other_state_is_without_an_isr() -> None:
    tombstone = nodes.LeaderAndIsr(
        topic_id=TopicId("A" * 22),
        leader=NO_LEADER,
        leader_epoch=LeaderEpoch(3),
        isr=(),
        elr=(),
        members={},
        controller_epoch=ControllerEpoch(1),
        removed=True,
    )
    assert nodes.LeaderAndIsr.decode(tombstone.encode()) == tombstone
    content = json.loads(tombstone.encode())
    # What does not know tombstones elects nobody from one.
    with pytest.raises(nodes.MalformedNodeError, match="isr is empty"):
        nodes.LeaderAndIsr.decode(json.dumps({**content, "removed": False}).encode())
    with pytest.raises(nodes.MalformedNodeError, match="neither true nor false"):
        nodes.LeaderAndIsr.decode(json.dumps({**content, "removed": 1}).encode())
    with pytest.raises(nodes.MalformedNodeError, match="neither isr nor elr"):
        nodes.LeaderAndIsr.decode(json.dumps({**content, "isr": [1], "members": {"1": [1, "L"]}}).encode())


@pytest.mark.parametrize(
    ("content", "ids"), [(b"", ()), (b" ", ()), (b"[3,1]", (3, 1)), (b'{"replicas":[2]}', (2,)), (b"{}", ())]
)
def test_replicas_of_a_partition_added_by_hand(content: bytes, ids: tuple[int, ...]) -> None:
    assert nodes.decode_added_replicas(content) == ids


def test_the_record_of_a_removed_partition_is_read_back() -> None:
    record = nodes.PartitionDeletionNode(
        topic="t", brokers=frozenset({BrokerId(1), BrokerId(2)}), leader_epoch=LeaderEpoch(7)
    )
    assert nodes.PartitionDeletionNode.decode(record.encode()) == record


def test_a_topic_node_names_brokers_that_its_partitions_went_away_from() -> None:
    node = nodes.TopicNode(topic_id=TopicId("A" * 22), partitions={0: (BrokerId(1),)}, left={0: (BrokerId(3),)})
    assert nodes.TopicNode.decode(node.encode()) == node
    assert b"left" not in replace(node, left={}).encode()
    content = json.loads(node.encode())
    # Of a partition that it does not have it says nothing.
    assert nodes.TopicNode.decode(json.dumps({**content, "left": {"0": [3], "1": [4]}}).encode()) == node


@pytest.mark.parametrize(
    ("left", "says"),
    [([], "left is not a JSON object"), ({"x": [1]}, "left: partition 'x'"), ({"0": 1}, "not a list of broker ids")],
)
def test_malformed_brokers_that_a_partition_left_say_what_is_wrong(left: object, says: str) -> None:
    content = {"version": 1, "topic_id": "A" * 22, "partitions": {"0": [1]}, "left": left}
    with pytest.raises(nodes.MalformedNodeError, match=says):
        nodes.TopicNode.decode(json.dumps(content).encode())


def test_a_topic_node_says_where_the_lives_of_its_partitions_began() -> None:
    node = replace(TOPIC, began={10: LeaderEpoch(6)})
    assert json.loads(node.encode())["began"] == {"10": 6}
    assert nodes.TopicNode.decode(node.encode()) == node
    assert nodes.TopicNode.decode(TOPIC.encode()).began == {}
    # What a partition that is gone began with means nothing, and neither does a zero.
    assert b"began" not in replace(node, partitions={0: (BrokerId(1),)}).encode()
    content = {**json.loads(node.encode()), "began": {"0": 0, "10": 6, "11": 9}}
    assert nodes.TopicNode.decode(json.dumps(content).encode()) == node


@pytest.mark.parametrize(
    ("began", "says"),
    [
        ([6], "began is not a JSON object"),
        ({"10": "6"}, "leader epoch of partition 10 is not an integer"),
        ({"10": -1}, "leader epoch of partition 10 is not an integer"),
        ({"10": True}, "leader epoch of partition 10 is not an integer"),
        ({"10": 10**9}, "leader epoch of partition 10 is not an integer"),
        ({"ten": 6}, "is not a plain number"),
    ],
)
def test_malformed_beginnings_say_what_is_wrong(began: object, says: str) -> None:
    content = {**json.loads(TOPIC.encode()), "began": began}
    with pytest.raises(nodes.MalformedNodeError, match=says):
        nodes.TopicNode.decode(json.dumps(content).encode())


def test_a_large_accepted_assignment_is_compressed_and_read_again() -> None:
    """Both are written together, and some stores take a megabyte."""
    brokers = [BrokerId(id) for id in range(100)]
    chance = random.Random(1)
    partitions = {number: tuple(chance.sample(brokers, 3)) for number in range(10_000)}
    guard = nodes.TopicIdNode(topic="t", accepted=nodes.AcceptedAssignment(partitions=partitions))
    data = guard.encode()
    assert len(data) < len(nodes.TopicNode(topic_id=None, partitions=partitions).encode()) * 0.6
    assert nodes.TopicIdNode.decode(data) == guard


@pytest.mark.parametrize(
    "accepted", ["1", "{}", "[]", '"?"', '"AAAA"', '{"partitions":{"0":[]}}', '{"partitions":{"0":[1,1]}}', '"eJw="']
)
def test_a_record_that_cannot_be_read_is_none_and_the_guard_stands(accepted: str) -> None:
    guard = nodes.TopicIdNode.decode(b'{"version":1,"topic":"t","accepted":%s}' % accepted.encode())
    assert guard == nodes.TopicIdNode(topic="t")
