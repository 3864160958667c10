"""The loop is free while a process reads, shows and changes as many access rules as a cluster has (rule S22)."""

from collections.abc import Sequence
from typing import Any, cast

import pytest
from regnum.admin.v1 import acls_pb2
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Node, Stat
from regnum_coordination.recipes.folders import ensure_folders
from regnum_coordination.recipes.resolved_store import ResolvedStore
from regnum_election.acls.calls import AclCalls
from regnum_election.servicers.acls import BINDINGS_MAX, FILTERS_MAX, PAGE_MAX, AclServicer
from regnum_model.access import Operation, ResourceType
from regnum_model.acls.bindings import Entry, Permission, ResourcePattern
from regnum_model.acls.index import AclIndex
from regnum_model.acls.nodes import FOLDERS, encode_rules, path_of
from regnum_model.principals import Principal
from regnum_model.quotas import CHANGES
from regnum_service.access.acls.authorizer import AclAuthorizer
from regnum_service.access.acls.following import AclFollower
from regnum_service.access.identity import Caller
from regnum_service.clock import SystemClock
from regnum_testing.clock import FakeClock
from regnum_testing.held_loop import HeldLoop, run_measured
from regnum_testing.served import served

pytestmark = pytest.mark.alone

PATTERNS = 50_000
STAT = Stat(creation_id=1, modification_id=1, version=0, children_id=1, ephemeral_owner=None)


def pattern(number: int) -> ResourcePattern:
    return ResourcePattern(type=ResourceType.TOPIC, name=f"topic-{number:05}")


class Nodes:
    """Reads as a store answers them, without a store's own work on this loop. Two rules for each pattern."""

    def __init__(self) -> None:
        both = [
            Entry(principal=principal, host="*", operation=Operation.READ, permission=Permission.ALLOW)
            for principal in ("User:a", "User:b")
        ]
        data = encode_rules(both)
        self._nodes = {path_of(pattern(number)): Node(data=data, stat=STAT) for number in range(PATTERNS)}
        self._folder = FOLDERS[0]
        self._names = tuple(path.rpartition("/")[2] for path in self._nodes)

    async def until_connected(self) -> None:
        """It is."""

    async def names(self, folder: str) -> tuple[str, ...]:
        return self._names if folder == self._folder else ()

    async def read_many(self, wanted: Sequence[str]) -> dict[str, Node]:
        return {path: self._nodes[path] for path in wanted if path in self._nodes}


class Whole(ResolvedStore):
    """A store that is always connected."""

    async def until_connected(self) -> None:
        """It is."""


class Role:
    """A controller that has the calls."""

    def __init__(self, store: Any) -> None:
        self.acls = AclCalls(store, FakeClock().wall_ms)

    async def controller(self) -> "Role":
        return self


async def call(held: HeldLoop, what: str, handler: Any, request: Any, answer: Any) -> Any:
    data = request.SerializeToString()
    with held.measuring(what):
        encoded = await served(handler, type(request), data)
    return answer.FromString(encoded)


def test_all_rules_are_read_and_described() -> None:
    async def scenario(held: HeldLoop) -> None:
        nodes = Nodes()
        authorizer = AclAuthorizer(AclIndex())
        follower = AclFollower(authorizer, SystemClock())
        for part in ("read", "read again"):
            with held.measuring(part):
                await follower.read_all(nodes)
        assert authorizer.index.count == 2 * PATTERNS
        servicer = AclServicer(cast("Any", Role(nodes)))
        page = await call(
            held,
            "described",
            servicer.DescribeAcls,
            acls_pb2.DescribeAclsRequest(),
            acls_pb2.DescribeAclsResponse,
        )
        assert len(page.acls) == PAGE_MAX
        last = await call(
            held,
            "described from the end",
            servicer.DescribeAcls,
            acls_pb2.DescribeAclsRequest(filter=acls_pb2.AclFilter(resource_name=pattern(PATTERNS - 1).name)),
            acls_pb2.DescribeAclsResponse,
        )
        assert len(last.acls) == 2
        found = await call(
            held,
            "asked",
            servicer.CheckAcls,
            acls_pb2.CheckAclsRequest(
                principal="User:a",
                operation=acls_pb2.ACL_OPERATION_READ,
                resource_type=acls_pb2.ACL_RESOURCE_TYPE_TOPIC,
                resource_name=pattern(7).name,
            ),
            acls_pb2.CheckAclsResponse,
        )
        assert found.allowed

    run_measured(scenario).assert_free()


def test_as_many_rules_as_one_call_may_have_are_added_and_removed() -> None:
    def binding(name: str, principal: str) -> acls_pb2.AclBinding:
        return acls_pb2.AclBinding(
            resource_type=acls_pb2.ACL_RESOURCE_TYPE_TOPIC,
            resource_name=name,
            principal=principal,
            operation=acls_pb2.ACL_OPERATION_READ,
            permission=acls_pb2.ACL_PERMISSION_ALLOW,
        )

    async def scenario(held: HeldLoop) -> None:
        store, clock = MemoryStore(MemoryServer()), FakeClock()
        await ensure_folders(store, (CHANGES, *FOLDERS), clock)
        servicer = AclServicer(cast("Any", Role(Whole(store, clock, deadline_s=60))))
        for what, rules in (
            ("of one pattern", [binding("one", f"User:{number}") for number in range(BINDINGS_MAX)]),
            ("of as many patterns", [binding(f"t-{number}", "User:a") for number in range(BINDINGS_MAX)]),
        ):
            request = acls_pb2.CreateAclsRequest(creations=rules)
            done = await call(held, what, servicer.CreateAcls, request, acls_pb2.CreateAclsResponse)
            assert [one.error_code for one in done.results] == [0] * BINDINGS_MAX
        wanted = [acls_pb2.AclFilter(resource_name=f"t-{number}") for number in range(FILTERS_MAX)]
        gone = await call(
            held,
            "removed",
            servicer.DeleteAcls,
            acls_pb2.DeleteAclsRequest(filters=wanted),
            acls_pb2.DeleteAclsResponse,
        )
        assert [len(one.deleted) for one in gone.results] == [1] * FILTERS_MAX

    run_measured(scenario).assert_free()


def test_what_somebody_with_very_many_rules_may_do_anywhere_is_found_anew_after_each_change() -> None:
    caller = Caller(principal=Principal("a"), host="10.0.0.1")
    index = AclIndex()
    for number in range(2 * PATTERNS):
        permission = Permission.DENY if number % 2 else Permission.ALLOW
        mine = Entry(principal="User:a", host="*", operation=Operation.READ, permission=permission)
        index.put(ResourcePattern(type=ResourceType.TOPIC, name=f"topic-{number:06}"), [mine])
    authorizer = AclAuthorizer(index)
    authorizer.read()

    async def scenario(held: HeldLoop) -> None:
        for operation, anywhere in ((Operation.READ, True), (Operation.DESCRIBE, True), (Operation.WRITE, False)):
            authorizer.changed()
            with held.measuring(f"{operation.name} anywhere"):
                assert authorizer.allows_any(caller, operation, ResourceType.TOPIC) is anywhere
            with held.measuring(f"{operation.name} everywhere"):
                assert not authorizer.allows_all(caller, operation, ResourceType.TOPIC)

    run_measured(scenario).assert_free()
