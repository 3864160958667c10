"""What members of a group read, as far as their subscriptions say."""

import struct

import pytest
from immutables import Map
from regnum_broker.groups.decisions.state import Group, GroupError, GroupState, Member, Refusal
from regnum_broker.groups.decisions.subscriptions import read_by, topics_of


def subscription(*topics: str, version: int = 1) -> bytes:
    names = b"".join(struct.pack(">h", len(name.encode())) + name.encode() for name in topics)
    return struct.pack(">hi", version, len(topics)) + names + struct.pack(">i", -1)


def group(*subscriptions: bytes, protocol_type: str = "consumer", state: GroupState = GroupState.STABLE) -> Group:
    members = {
        f"m{number}": Member(
            member_id=f"m{number}",
            session_timeout_s=1,
            rebalance_timeout_s=1,
            protocols=(("range", one), ("other", b"")),
            deadline_s=0,
        )
        for number, one in enumerate(subscriptions)
    }
    return Group(group_id="g", state=state, protocol_type=protocol_type, protocol="range", members=Map(members))


def test_topics_are_what_a_consumer_writes_first() -> None:
    assert topics_of(subscription("a", "ä", version=3)) == {"a", "ä"}
    assert topics_of(subscription()) == frozenset()


@pytest.mark.parametrize(
    "bytes_", [b"", b"name", subscription("topic")[:-6], b"\0\1\0\0\0\1\xff\xffx", b"\0\1\0\0\0\1\0\1\xff"]
)
def test_bytes_of_another_kind_say_nothing(bytes_: bytes) -> None:
    assert topics_of(bytes_) is None


def test_a_group_reads_what_any_of_its_members_reads() -> None:
    assert read_by(group(subscription("a"), subscription("a", "b"))) == {"a", "b"}
    assert read_by(group(subscription("a"), b"?")) is None
    assert read_by(group(state=GroupState.EMPTY, protocol_type="connect")) == frozenset()
    refused = read_by(group(b"?", protocol_type="connect"))
    assert isinstance(refused, Refusal)
    assert refused.error is GroupError.NON_EMPTY_GROUP
