"""CreateAcls, DeleteAcls, DescribeAcls and CheckAcls at the controller, over a store."""

from collections.abc import Sequence
from typing import Any, cast

import pytest
from regnum.admin.v1 import acls_pb2
from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.recipes.folders import ensure_folders
from regnum_coordination.recipes.resolved_store import ResolvedStore
from regnum_coordination.recipes.stored_quotas import newest_change
from regnum_election.acls.calls import AclCalls
from regnum_election.acls.messages import binding_message, binding_of, filter_of
from regnum_election.decisions.rejection import Rejection
from regnum_model.access import CLUSTER_NAME, Operation, ResourceType
from regnum_model.acls.bindings import AclBinding, Entry, PatternType, Permission, ResourcePattern
from regnum_model.acls.chosen import FOLDER as DELETIONS
from regnum_model.acls.filters import AclFilter, PatternFilter
from regnum_model.acls.index import AclIndex
from regnum_model.acls.nodes import FOLDERS, RULES_MAX, decode_rules, encode_rules, path_of
from regnum_model.quotas import CHANGES
from regnum_testing.clock import FakeClock

TOPIC = ResourceType.TOPIC
ORDERS = ResourcePattern(type=TOPIC, name="orders")
PREFIX = ResourcePattern(type=TOPIC, name="ord", pattern=PatternType.PREFIXED)


class Whole(ResolvedStore):
    """A store that is always connected."""

    async def until_connected(self) -> None:
        """It is."""


def rule(operation: Operation = Operation.READ, pattern: ResourcePattern = ORDERS, who: str = "User:a") -> AclBinding:
    return AclBinding(
        pattern=pattern,
        entry=Entry(principal=who, host="*", operation=operation, permission=Permission.ALLOW),
    )


class World:
    """A store and the calls of a reign."""

    def __init__(self) -> None:
        self.store, self.clock = MemoryStore(MemoryServer()), FakeClock()
        whole = Whole(self.store, self.clock, deadline_s=5)
        self.calls = AclCalls(cast("Any", whole), self.clock.wall_ms)

    async def create(self, *rules: AclBinding | Rejection, id: str | None = None, dry: bool = False) -> Sequence[Any]:
        return await self.calls.create(rules, validate_only=dry, wait_s=5, mutation=id)

    async def delete(self, *filters: AclFilter, id: str | None = None, dry: bool = False) -> Sequence[Any]:
        return await self.calls.delete(filters, validate_only=dry, wait_s=5, mutation=id)

    async def all(self, wanted: AclFilter | None = None) -> list[AclBinding]:
        return list((await self.calls.describe(wanted or AclFilter(), after="", most=1_000, wait_s=5)).bindings)

    async def announced(self) -> int:
        return newest_change((await self.store.children(CHANGES)).names)


async def opened() -> World:
    world = World()
    await ensure_folders(world.store, (CHANGES, DELETIONS, *FOLDERS), world.clock)
    return world


async def test_rules_that_were_added_are_listed_and_each_pattern_is_announced_once() -> None:
    world = await opened()
    rules = [rule(), rule(Operation.WRITE), rule(pattern=PREFIX)]
    assert await world.create(*rules) == (None, None, None)
    assert set(await world.all()) == set(rules)
    assert await world.announced() == 2
    assert await world.create(rules[0]) == (None,)
    assert await world.announced() == 2


async def test_one_wrong_rule_stops_no_other_and_a_dry_run_changes_nothing() -> None:
    world = await opened()
    wrong = rule(who="alice")
    outcomes = await world.create(wrong, rule(), dry=True)
    assert outcomes[0].code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert outcomes[1] is None
    assert await world.all() == []
    outcomes = await world.create(wrong, rule())
    assert "write User:name" in outcomes[0].message
    assert await world.all() == [rule()]


async def test_a_repeat_of_an_addition_does_not_bring_back_what_somebody_removed_since() -> None:
    world = await opened()
    await world.create(rule(), id="first")
    await world.delete(AclFilter(type=TOPIC, name="orders", pattern=PatternFilter.LITERAL), id="other")
    assert await world.create(rule(), id="first") == (None,)
    assert await world.all() == []
    # The node stays for its log, and says nothing.
    assert decode_rules(ORDERS, (await world.store.get(path_of(ORDERS))).data) == frozenset()
    refused = await world.create(rule(Operation.WRITE), id="first")
    assert "used for another change" in refused[0].message


async def test_a_repeat_of_a_removal_does_not_take_away_what_somebody_added_since() -> None:
    world = await opened()
    wanted = AclFilter(type=TOPIC, name="orders", pattern=PatternFilter.LITERAL)
    await world.create(rule(), rule(Operation.WRITE))
    (removed,) = await world.delete(wanted, id="gone")
    assert (set(removed.bindings), removed.before) == ({rule(), rule(Operation.WRITE)}, 0)
    await world.create(rule())
    (again,) = await world.delete(wanted, id="gone")
    assert (again.bindings, again.before) == ((), 2)
    assert await world.all() == [rule()]
    # Also where there was nothing to remove when it first came.
    await world.delete(AclFilter(type=TOPIC, name="none", pattern=PatternFilter.LITERAL), id="nothing")
    none = rule(pattern=ResourcePattern(type=TOPIC, name="none"))
    await world.create(none)
    await world.delete(AclFilter(type=TOPIC, name="none", pattern=PatternFilter.LITERAL), id="nothing")
    assert none in await world.all()


async def test_a_wide_filter_removes_what_fits_of_every_pattern_and_nothing_else() -> None:
    world = await opened()
    bob = rule(who="User:bob")
    await world.create(rule(), rule(pattern=PREFIX), bob)
    wanted = AclFilter(name="orders", pattern=PatternFilter.MATCH, principal="User:a")
    (would,) = await world.delete(wanted, dry=True)
    assert set(would.bindings) == {rule(), rule(pattern=PREFIX)}
    assert len(await world.all()) == 3
    (removed,) = await world.delete(wanted)
    assert set(removed.bindings) == {rule(), rule(pattern=PREFIX)}
    assert await world.all() == [bob]
    assert await world.store.exists(path_of(PREFIX)) is None


async def test_rules_come_in_pages_that_leave_nothing_out() -> None:
    world = await opened()
    rules = {rule(pattern=ResourcePattern(type=TOPIC, name=f"t{number}")) for number in range(7)}
    await world.create(*rules)
    found: list[AclBinding] = []
    place, pages = "", 0
    while True:
        page = await world.calls.describe(AclFilter(), after=place, most=3, wait_s=5)
        found += page.bindings
        place, pages = page.place, pages + 1
        if not place:
            break
    assert (len(found), set(found), pages) == (7, rules, 3)


async def test_a_node_that_cannot_be_read_is_shown_and_not_written_over() -> None:
    world = await opened()
    await world.store.create(path_of(ORDERS), b"junk")
    page = await world.calls.describe(AclFilter(), after="", most=10, wait_s=5)
    assert list(page.unreadable) == [path_of(ORDERS)]
    (refused,) = await world.create(rule())
    assert refused.code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    assert "cannot be read" in refused.message
    (kept,) = await world.delete(AclFilter(principal="User:a"))
    assert kept.refused is not None
    assert (await world.store.get(path_of(ORDERS))).data == b"junk"


async def test_a_pattern_takes_no_more_rules_than_its_node_may_have() -> None:
    world = await opened()
    full = [rule(who=f"User:{number}").entry for number in range(RULES_MAX)]
    await world.store.create(path_of(ORDERS), encode_rules(full))
    (refused,) = await world.create(rule(who="User:one-more"))
    assert str(RULES_MAX) in refused.message
    assert await world.create(rule(who="User:0")) == (None,)


@pytest.mark.parametrize(
    ("who", "expected", "why"),
    [
        ("User:a", True, "allowed by the rule: ALLOW READ to User:a"),
        ("User:b", False, "denied: no rule allows it"),
        ("User:root", True, "super user"),
    ],
)
async def test_a_check_says_what_decides_for_whomever_it_is_about(who: str, expected: bool, why: str) -> None:
    world = await opened()
    await world.create(rule(pattern=PREFIX))
    decision = await world.calls.decide(
        AclIndex(super_users=["User:root"]),
        principal=who,
        host="",
        operation=Operation.DESCRIBE,
        type=TOPIC,
        name="orders",
        wait_s=5,
    )
    assert decision.allowed is expected
    assert why in str(decision)


def test_what_the_wire_leaves_out_of_a_rule_is_meant_as_people_mean_it() -> None:
    message = acls_pb2.AclBinding(
        resource_type=acls_pb2.ACL_RESOURCE_TYPE_CLUSTER,
        resource_name=CLUSTER_NAME,
        principal="User:a",
        operation=acls_pb2.ACL_OPERATION_ALTER,
        permission=acls_pb2.ACL_PERMISSION_DENY,
    )
    binding = binding_of(message)
    assert isinstance(binding, AclBinding)
    assert (binding.pattern.pattern, binding.entry.host) == (PatternType.LITERAL, "*")
    assert binding_of(binding_message(binding)) == binding
    for incomplete in (acls_pb2.AclBinding(), acls_pb2.AclBinding(resource_type=99)):
        assert isinstance(binding_of(incomplete), Rejection)


def test_the_numbers_of_the_wire_are_those_of_the_model() -> None:
    for model, wire, prefix in (
        (ResourceType, acls_pb2.AclResourceType, "ACL_RESOURCE_TYPE_"),
        (Operation, acls_pb2.AclOperation, "ACL_OPERATION_"),
        (Permission, acls_pb2.AclPermission, "ACL_PERMISSION_"),
        (PatternFilter, acls_pb2.AclPatternType, "ACL_PATTERN_TYPE_"),
    ):
        assert {f"{prefix}{one.name}": int(one) for one in model} == {
            name: number for name, number in wire.items() if number
        }
    assert filter_of(acls_pb2.AclFilter()) == AclFilter()
    named = filter_of(acls_pb2.AclFilter(resource_name="", host="::ffff:10.0.0.1"))
    assert isinstance(named, AclFilter)
    assert (named.name, named.host) == ("", "10.0.0.1")


async def test_several_filters_go_with_an_id_of_any_length_that_an_id_may_have_and_are_remembered() -> None:
    world = await opened()
    filters = [AclFilter(operation=operation) for operation in (Operation.READ, Operation.WRITE)]
    await world.create(rule(), rule(Operation.WRITE), id="add")
    first = await world.delete(*filters, id="x" * 64)
    assert [(one.refused, len(one.bindings)) for one in first] == [(None, 1), (None, 1)]
    await world.create(rule(), rule(Operation.WRITE), id="again")
    assert [len(one.bindings) for one in await world.delete(*filters, id="x" * 64)] == [0, 0]
    assert len(await world.all()) == 2
