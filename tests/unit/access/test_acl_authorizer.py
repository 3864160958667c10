"""Rules from the store: read, kept up with, fail closed; decisions are kept until a rule changes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Create, Delete, Set
from regnum_coordination.recipes.announced import Announced
from regnum_coordination.recipes.folders import ensure_folders
from regnum_coordination.recipes.mutating import announcement
from regnum_model.access import Operation, ResourceType
from regnum_model.acls.bindings import Entry, PatternType, Permission, ResourcePattern
from regnum_model.acls.index import AclIndex
from regnum_model.acls.nodes import FOLDERS, encode_rules, path_of
from regnum_model.principals import Principal
from regnum_model.quotas import CHANGES, change_path
from regnum_service.access.acls.authorizer import KEPT_NAME_MAX, AclAuthorizer
from regnum_service.access.acls.following import AclFollower
from regnum_service.access.authorization import Denials
from regnum_service.access.identity import Caller
from regnum_service.clock import SystemClock
from regnum_service.errors import RegnumError
from regnum_telemetry.instruments import process as instruments
from regnum_telemetry.metrics import Metrics
from regnum_testing.waiting import eventually

ALICE = Caller(principal=Principal("alice"), host="10.0.0.1")
ROOT = Caller(principal=Principal("root"), host="10.0.0.1")
TOPIC = ResourceType.TOPIC
ORDERS = ResourcePattern(type=TOPIC, name="orders")


def entry(operation: Operation = Operation.READ, *, permission: Permission = Permission.ALLOW) -> Entry:
    return Entry(principal="User:alice", host="*", operation=operation, permission=permission)


class CountedIndex(AclIndex):
    """Counts the decisions that were made."""

    made = 0

    def decide(self, *args: object) -> object:  # type: ignore[override]
        self.made += 1
        return super().decide(*args)  # type: ignore[arg-type]


class Kept:
    """An audit log that keeps denials."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def denied(
        self,
        who: Caller,
        operation: Operation,
        type: ResourceType,
        name: str,
        *,
        rule: str,
        call: str,
        client_id: str = "",
    ) -> None:
        self.lines.append(f"{who.principal} {operation.name} {type.name} {name}: {rule}")

    def mutated(self, *_what: object, **_how: object) -> None:
        """Nothing."""

    def unauthenticated(self, *_what: object, **_how: object) -> None:
        """Nothing."""


def loaded(*rules: Entry, audit: Kept | None = None) -> tuple[AclAuthorizer, CountedIndex]:
    index = CountedIndex(super_users=["User:root"])
    authorizer = AclAuthorizer(index, denials=Denials(audit), internal_super_users=["User:regnum"])
    authorizer.put(ORDERS, rules)
    authorizer.read()
    return authorizer, index


def test_decisions_about_names_that_nothing_can_have_are_not_kept() -> None:
    authorizer, index = loaded(entry())
    assert authorizer.allows(ALICE, Operation.READ, TOPIC, "orders")
    for number in (2, 3):
        assert not authorizer.allows(ALICE, Operation.READ, TOPIC, "x" * (KEPT_NAME_MAX + 1))
        assert index.made == number, "it would take megabytes to remember such a name"
    for _ in range(2):
        assert not authorizer.allows(ALICE, Operation.READ, TOPIC, "x" * KEPT_NAME_MAX)
        assert authorizer.allows(ALICE, Operation.READ, TOPIC, "orders")
        assert index.made == 4


def test_a_decision_is_made_once_and_anew_after_a_rule_has_changed() -> None:
    authorizer, index = loaded(entry())
    for _ in range(3):
        assert authorizer.allows(ALICE, Operation.READ, TOPIC, "orders")
    assert index.made == 1
    before = authorizer.generation
    authorizer.put(ORDERS, ())
    authorizer.changed()
    assert authorizer.generation != before
    assert not authorizer.allows(ALICE, Operation.READ, TOPIC, "orders")
    assert index.made == 2


def test_the_same_name_at_another_address_or_for_somebody_else_is_another_question() -> None:
    authorizer, _ = loaded(
        Entry(principal="User:alice", host="10.0.0.1", operation=Operation.READ, permission=Permission.ALLOW)
    )
    assert authorizer.allows(ALICE, Operation.READ, TOPIC, "orders")
    elsewhere = Caller(principal=Principal("alice"), host="10.0.0.2")
    assert not authorizer.allows(elsewhere, Operation.READ, TOPIC, "orders")
    assert not authorizer.allows(Caller(principal=Principal("bob"), host="10.0.0.1"), Operation.READ, TOPIC, "orders")
    assert not authorizer.allows(ALICE, Operation.READ, ResourceType.GROUP, "orders")


def test_decisions_that_are_kept_are_bounded_whatever_names_are_asked_for() -> None:
    authorizer = AclAuthorizer(AclIndex(), kept_max=100)
    authorizer.put(ORDERS, [entry()])
    authorizer.read()
    for number in range(1_000):
        assert not authorizer.allows(ALICE, Operation.READ, TOPIC, f"made-up-{number}")
        assert len(authorizer._kept) <= 100
    assert authorizer.allows(ALICE, Operation.READ, TOPIC, "orders")


def test_before_the_rules_are_read_only_super_users_pass_and_others_are_told_to_try_again() -> None:
    authorizer = AclAuthorizer(AclIndex(super_users=["User:root"], everyone_if_no_acl=True))
    assert authorizer.allows(ROOT, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    assert authorizer.allows_all(ROOT, Operation.DESCRIBE, TOPIC)
    for ask in (
        lambda: authorizer.allows(ALICE, Operation.READ, TOPIC, "orders"),
        lambda: authorizer.allows_any(ALICE, Operation.WRITE, TOPIC),
        lambda: authorizer.allows_all(ALICE, Operation.DESCRIBE, TOPIC),
    ):
        with pytest.raises(RegnumError, match="only super users pass") as refused:
            ask()
        assert refused.value.code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE
    authorizer.read()
    assert authorizer.allows(ALICE, Operation.READ, TOPIC, "orders")


def test_a_denial_is_written_down_each_time_with_its_rule_and_what_lists_leave_out_is_none() -> None:
    denials = Kept()
    authorizer, _ = loaded(entry(), entry(permission=Permission.DENY), audit=denials)
    authorizer.allows(ALICE, Operation.READ, TOPIC, "orders", audit=False)
    assert denials.lines == []
    authorizer.allows(ALICE, Operation.READ, TOPIC, "orders")
    authorizer.allows(ALICE, Operation.READ, TOPIC, "orders")
    authorizer.allows(ALICE, Operation.WRITE, TOPIC, "other")
    assert denials.lines == [
        *["User:alice READ TOPIC orders: denied by the rule: DENY READ to User:alice from * on TOPIC LITERAL 'orders'"]
        * 2,
        "User:alice WRITE TOPIC other: denied: no rule allows it",
    ]


def test_the_principal_of_processes_may_everything_between_processes_and_is_anybody_elsewhere() -> None:
    denials = Kept()
    authorizer, _ = loaded(entry(), audit=denials)
    process = Principal("regnum")
    for listener in ("internal", "lifeline"):
        inside = Caller(principal=process, listener=listener)
        assert authorizer.allows(inside, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
        assert authorizer.allows_any(inside, Operation.WRITE, TOPIC)
        assert authorizer.allows_all(inside, Operation.DESCRIBE, TOPIC)
        assert authorizer.reach(inside, Operation.DESCRIBE, TOPIC) is None
    # Before and after it was answered for a process, and in the name of a client that a broker speaks for.
    for outside in (Caller(principal=process), Caller(principal=process, forwarded=True, via="CN=broker-1")):
        assert not authorizer.allows(outside, Operation.CREATE, ResourceType.CLUSTER)
        assert not authorizer.allows_any(outside, Operation.WRITE, TOPIC)
        assert not authorizer.allows_all(outside, Operation.DESCRIBE, TOPIC)
    assert denials.lines[0] == (
        "User:regnum CREATE CLUSTER kafka-cluster: denied: no rule allows it; internal-super-users count at the"
        " listeners between processes alone"
    )
    authorizer.forget()
    assert authorizer.allows(Caller(principal=process, listener="internal"), Operation.ALTER, ResourceType.CLUSTER)


class Following:
    """A store with rules, and one process that follows them."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.store = MemoryStore(self.server)
        self.authorizer = AclAuthorizer(AclIndex(super_users=["User:root"]))
        self.follower = AclFollower(self.authorizer, SystemClock())
        self.sessions: list[MemoryStore] = [MemoryStore(self.server)]
        self.number = 0

    async def wait_store(self) -> MemoryStore:
        return self.sessions[-1]

    async def write(self, path: str, data: bytes | None) -> None:
        """Write or delete a node, and announce it, as the controller does."""
        self.number += 1
        stat = await self.store.exists(path)
        if data is None:
            assert stat is not None
            operation: Create | Set | Delete = Delete(path, stat.version)
        else:
            operation = Create(path, data) if stat is None else Set(path, data, stat.version)
        await self.store.multi((operation, Create(change_path(self.number), announcement(path))))

    async def allowed(self, name: str = "orders", who: Caller = ALICE) -> bool:
        try:
            return self.authorizer.allows(who, Operation.READ, TOPIC, name)
        except RegnumError:
            return False

    async def becomes(self, allowed: bool, name: str = "orders") -> None:
        async def is_so() -> bool:
            return self.authorizer.loaded and await self.allowed(name) is allowed

        await eventually(is_so, what=f"{name} allowed: {allowed}")


@contextlib.asynccontextmanager
async def following(*, before: dict[str, bytes] | None = None) -> AsyncIterator[Following]:
    world = Following()
    await ensure_folders(world.store, (CHANGES, *FOLDERS), SystemClock())
    for path, data in (before or {}).items():
        await world.store.create(path, data)
    task = asyncio.create_task(world.follower.run(world.wait_store))
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_rules_are_read_at_the_beginning_and_every_change_is_in_force_as_soon_as_it_is_announced() -> None:
    async with following(before={path_of(ORDERS): encode_rules([entry()])}) as world:
        await world.becomes(allowed=True)
        await world.write(path_of(ORDERS), encode_rules([entry(), entry(permission=Permission.DENY)]))
        await world.becomes(allowed=False)
        await world.write(path_of(ORDERS), encode_rules([entry()]))
        await world.becomes(allowed=True)
        await world.write(path_of(ORDERS), None)
        await world.becomes(allowed=False)
        prefix = ResourcePattern(type=TOPIC, name="ord", pattern=PatternType.PREFIXED)
        await world.write(path_of(prefix), encode_rules([entry()]))
        await world.becomes(allowed=True)
        assert await world.allowed("ordinary"), "the prefix allows it"
        assert not await world.allowed("other")


class CountingReader:
    """Counts the nodes that were read."""

    def __init__(self, store: MemoryStore) -> None:
        self.store, self.read = store, 0

    async def names(self, folder: str) -> tuple[str, ...]:
        return (await self.store.children(folder)).names

    async def read_many(self, wanted: list[str]) -> dict[str, object]:
        self.read += len(wanted)
        nodes = await self.store.get_many(wanted)
        return {path: node for path, node in zip(wanted, nodes, strict=True) if node is not None}


async def test_a_change_costs_the_node_that_changed_and_not_all_that_there_are() -> None:
    world = Following()
    await ensure_folders(world.store, (CHANGES, *FOLDERS), SystemClock())
    for number in range(300):
        name = ResourcePattern(type=TOPIC, name=f"t{number}")
        await world.store.create(path_of(name), encode_rules([entry()]))
    reader, announced = CountingReader(world.store), Announced()
    assert await announced.look(reader, ()) is None  # type: ignore[arg-type]
    await world.follower.read_all(reader)  # type: ignore[arg-type]
    assert world.authorizer.index.count == 300
    before = reader.read
    await world.write(path_of(ORDERS), encode_rules([entry()]))
    paths = await announced.look(reader, (await world.store.children(CHANGES)).names)  # type: ignore[arg-type]
    assert paths == {path_of(ORDERS)}
    await world.follower._read(sorted(paths), reader)  # type: ignore[arg-type]
    # The announcement, and the node.
    assert reader.read - before == 2
    assert await world.allowed()


async def test_a_node_that_nobody_can_read_denies_until_it_is_corrected_and_is_seen() -> None:
    metrics = Metrics()
    world = Following()
    world.authorizer = AclAuthorizer(AclIndex(super_users=["User:root"]), metrics=metrics)
    follower = AclFollower(world.authorizer, SystemClock())
    await ensure_folders(world.store, (CHANGES, *FOLDERS), SystemClock())
    everything = ResourcePattern(type=TOPIC, name="*")
    await world.store.create(path_of(everything), encode_rules([entry()]))
    await world.store.create(path_of(ORDERS), b"junk")
    await world.store.create(f"{FOLDERS[0]}/%zz", b"junk")
    reader = CountingReader(world.store)
    await follower.read_all(reader)  # type: ignore[arg-type]
    assert not await world.allowed("orders")
    assert await world.allowed("orders", ROOT)
    assert await world.allowed("others")
    unreadable = next(
        point
        for reading in metrics.read()
        if reading.instrument is instruments.ACL_PATTERNS_UNREADABLE
        for point in reading.numbers
    )
    assert unreadable[1] == 1
    await world.store.set(path_of(ORDERS), b'{"version":1}', version=None)
    await follower.read_all(reader)  # type: ignore[arg-type]
    assert await world.allowed("orders")


async def test_rules_that_were_removed_while_nobody_looked_are_gone_after_the_next_look() -> None:
    async with following(before={path_of(ORDERS): encode_rules([entry()])}) as world:
        await world.becomes(allowed=True)
        await world.store.delete(path_of(ORDERS), version=None)
        # Announced by hand: a node of any name.
        await world.store.create(f"{CHANGES}/by-hand", b"")
        await world.becomes(allowed=False)
        assert await world.allowed(who=ROOT), "nobody else loses what they have"


@pytest.mark.parametrize("part", ["//orders", "/", "/../orders", "/\0", "/\ud800", "/.", ""])
async def test_an_announcement_of_what_is_no_path_has_everything_read(part: str) -> None:
    async with following(before={path_of(ORDERS): encode_rules([entry()])}) as world:
        await world.becomes(allowed=True)
        await world.store.delete(path_of(ORDERS), version=None)
        world.number += 1
        await world.store.create(change_path(world.number), announcement(f"{FOLDERS[0]}{part}" if part else "acls"))
        await world.becomes(allowed=False)
        await world.write(path_of(ORDERS), encode_rules([entry()]))
        await world.becomes(allowed=True)
        assert await world.allowed()


async def test_a_process_that_surrendered_without_the_store_grants_nothing_until_it_has_read_again() -> None:
    async with following(before={path_of(ORDERS): encode_rules([entry()])}) as world:
        await world.becomes(allowed=True)
        # With a session that is followed nothing is outdated.
        world.follower.surrendered()
        assert await world.allowed()
        world.server.expire(world.sessions[-1].session_id)
        await world.sessions[-1].wait_lost()
        # A store that is away takes no rights away by itself.
        assert await world.allowed()
        world.follower.surrendered()
        assert not await world.allowed()
        assert await world.allowed(who=ROOT)
        await world.write(path_of(ORDERS), encode_rules([entry(), entry(permission=Permission.DENY)]))
        world.sessions.append(MemoryStore(world.server))
        await world.becomes(allowed=False)
        await world.write(path_of(ORDERS), encode_rules([entry()]))
        await world.becomes(allowed=True)
