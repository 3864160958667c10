"""Pages of topics for who may see few of them: the same as by asking of every topic, at the cost of what is seen."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regnum.metadata.v1 import metadata_pb2
from regnum.types.v1 import types_pb2
from regnum_metadata.servicers.metadata import MetadataServicer
from regnum_model.access import Operation, ResourceType
from regnum_model.acls.bindings import ANY_HOST, ANY_NAME, EVERYBODY, Entry, PatternType, Permission, ResourcePattern
from regnum_model.acls.index import REACH_MAX, AclIndex
from regnum_model.acls.reach import Reach
from regnum_model.principals import Principal
from regnum_service.access.acls.authorizer import AclAuthorizer
from regnum_service.access.identity import Caller, calling
from regnum_service.cluster_image.feed import ClusterFeed
from regnum_service.cluster_image.held import HeldImage
from regnum_service.name_order import NameOrder
from regnum_service.topic_pages import TopicPages
from regnum_testing.metadata_values import change, image, topic

TOPIC = ResourceType.TOPIC
ALICE = Caller(principal=Principal("alice"), host="10.0.0.1")


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: str = "id"
    partitions: Mapping[int, types_pb2.PartitionState] = field(
        default_factory=lambda: {0: types_pb2.PartitionState(partition=0, leader=1)}
    )


class CountedIndex(AclIndex):
    """An index that says how often it decided."""

    decided = 0

    def decide(self, *what: object) -> object:  # type: ignore[override]
        self.decided += 1
        return super().decide(*what)  # type: ignore[arg-type]


async def listed(index: AclIndex, names: list[str], *, prefix: str = "", limit: int = 10) -> tuple[list[str], int]:
    """All pages for alice: names, and pages."""
    authorizer = AclAuthorizer(index)
    authorizer.read()
    topics = {name: Topic(name) for name in names}
    pages = TopicPages(lambda: topics, NameOrder(), authorizer=authorizer)
    request = metadata_pb2.DescribeTopicsRequest(limit=limit, filter=metadata_pb2.TopicFilter(prefix=prefix))
    found: list[str] = []
    count = 0
    with calling(ALICE):
        while True:
            answer = metadata_pb2.DescribeTopicsResponse.FromString(
                await pages.page(request, metadata_pb2.DescribeTopicsResponse)
            )
            found += [one.topic.name for one in answer.topics]
            count += 1
            if not answer.HasField("next_cursor"):
                return found, count
            request.cursor.CopyFrom(answer.next_cursor)


def put(index: AclIndex, *rules: tuple[ResourcePattern, Entry]) -> None:
    by_pattern: dict[ResourcePattern, list[Entry]] = {}
    for pattern, entry in rules:
        by_pattern.setdefault(pattern, []).append(entry)
    for pattern, entries in by_pattern.items():
        index.put(pattern, entries)


def allowing(name: str, *, prefixed: bool = False, who: str = "User:alice") -> tuple[ResourcePattern, Entry]:
    kind = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    entry = Entry(principal=who, host=ANY_HOST, operation=Operation.READ, permission=Permission.ALLOW)
    return ResourcePattern(type=TOPIC, name=name, pattern=kind), entry


NAMES = st.text("ab", min_size=1, max_size=4)
PATTERNS = st.builds(
    ResourcePattern,
    type=st.sampled_from([TOPIC, ResourceType.GROUP]),
    name=NAMES,
    pattern=st.sampled_from(PatternType),
) | st.just(ResourcePattern(type=TOPIC, name=ANY_NAME))
ENTRIES = st.builds(
    Entry,
    principal=st.sampled_from(["User:alice", "User:bob", EVERYBODY]),
    host=st.sampled_from([ANY_HOST, "10.0.0.1", "10.0.0.2"]),
    operation=st.sampled_from([Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALL]),
    permission=st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
)


@given(
    names=st.lists(NAMES, unique=True, max_size=25),
    rules=st.lists(st.tuples(PATTERNS, ENTRIES), max_size=8),
    unreadable=st.lists(PATTERNS, max_size=1),
    everyone=st.sampled_from([False, False, False, True]),
    prefix=st.sampled_from(["", "", "a", "ab", "b"]),
    limit=st.integers(1, 4),
)
@settings(max_examples=100, deadline=None)
async def test_pages_are_those_of_asking_about_every_topic(
    names: list[str],
    rules: list[tuple[ResourcePattern, Entry]],
    unreadable: list[ResourcePattern],
    everyone: bool,
    prefix: str,
    limit: int,
) -> None:
    index = AclIndex(everyone_if_no_acl=everyone)
    put(index, *rules)
    for pattern in unreadable:
        index.put(pattern, None)
    found, _ = await listed(index, names, prefix=prefix, limit=limit)
    assert found == [
        name
        for name in sorted(names)
        if name.startswith(prefix) and index.decide("User:alice", "10.0.0.1", Operation.DESCRIBE, TOPIC, name).allowed
    ]


async def test_who_sees_few_of_many_topics_is_asked_about_few() -> None:
    names = [f"t-{number:06}" for number in range(20_000)]
    index = CountedIndex()
    put(
        index,
        allowing("t-000007"),
        allowing("t-01000", prefixed=True),
        allowing("t-010001"),
        allowing("gone"),
        allowing("t-019999", who=EVERYBODY),
    )
    index.put(
        ResourcePattern(type=TOPIC, name="t-010005"),
        [Entry(principal="User:alice", host=ANY_HOST, operation=Operation.ALL, permission=Permission.DENY)],
    )
    found, pages = await listed(index, names, limit=4)
    assert found == ["t-000007", *(f"t-01000{number}" for number in range(10) if number != 5), "t-019999"]
    assert pages == 3
    assert index.decided <= 20, "the other 19,988 cost nothing"


@pytest.mark.parametrize("wide", ["rule", "super user", "default", "very many rules"])
def test_who_may_see_anything_has_no_reach_that_lists_could_keep_to(wide: str) -> None:
    index = AclIndex(super_users=["User:alice"] if wide == "super user" else [], everyone_if_no_acl=wide == "default")
    put(index, allowing("a"))
    if wide == "rule":
        put(index, allowing(ANY_NAME, who=EVERYBODY))
    if wide == "very many rules":
        put(index, *(allowing(f"t-{number}") for number in range(REACH_MAX)))
    assert index.reach("User:alice", "h", Operation.DESCRIBE, TOPIC) is None


def test_a_reach_is_found_anew_after_a_rule_has_changed() -> None:
    authorizer = AclAuthorizer(AclIndex())
    authorizer.read()
    assert authorizer.reach(ALICE, Operation.DESCRIBE, TOPIC) == Reach((), frozenset())
    pattern, entry = allowing("a", prefixed=True)
    authorizer.put(pattern, [entry])
    authorizer.changed()
    assert authorizer.reach(ALICE, Operation.DESCRIBE, TOPIC) == Reach(("a",), frozenset({"a"}))
    assert authorizer.reach(ALICE, Operation.WRITE, TOPIC) == Reach((), frozenset())


async def test_a_metadata_process_that_is_asked_for_all_topics_asks_of_those_that_rules_name() -> None:
    index = CountedIndex()
    put(index, allowing("t7"), allowing("t4", prefixed=True))
    authorizer = AclAuthorizer(index)
    authorizer.read()
    known = image(change(0, 1, *(topic(f"t{number}", 1) for number in range(300))))
    servicer = MetadataServicer(lambda: known, NameOrder(), ClusterFeed(HeldImage), authorizer)
    with calling(ALICE):
        answer = await servicer.GetMetadata(metadata_pb2.GetMetadataRequest(), None)
    names = {one.topic.name for one in metadata_pb2.GetMetadataResponse.FromString(answer).topics}
    assert names == {"t7", "t4", *(f"t4{digit}" for digit in range(10))}
    assert index.decided < 30
