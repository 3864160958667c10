"""A mutation of one node: carried out once, whoever dies, whoever else writes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest
from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Check, Create, Node, Operation, OperationResult, Store
from regnum_coordination.recipes.announced import Announced
from regnum_coordination.recipes.folders import ensure_folders
from regnum_coordination.recipes.mutating import CHANGES_KEPT, Carried, Change, Mutation, NodeMutations
from regnum_coordination.recipes.resolved_store import ResolvedStore
from regnum_coordination.recipes.stored_quotas import StoreReader, newest_change
from regnum_model.mutations import KEPT, REPEATED_MS, digest_of, log_of
from regnum_model.nodes import MalformedNodeError
from regnum_model.nodes.reading import dumped, loaded
from regnum_model.quotas import CHANGES, change_path
from regnum_model.rejection import Rejection
from regnum_testing.clock import FakeClock

PATH = "/config/x"
INVALID = errors_pb2.ERROR_CODE_INVALID_REQUEST


class DiesAfterWriting(ResolvedStore):
    """A process that is killed when the store has its write, before anybody hears of it."""

    async def multi(self, operations: Sequence[Operation]) -> tuple[OperationResult, ...]:
        await super().multi(operations)
        raise asyncio.CancelledError


class MeetsAnother(ResolvedStore):
    """Somebody else writes between what was read and what is written, so many times."""

    def __init__(self, store: Store, clock: FakeClock, other: Callable[[], Awaitable[None]], *, times: int) -> None:
        super().__init__(store, clock, deadline_s=5)
        self._other, self.left = other, times

    async def multi(self, operations: Sequence[Operation]) -> tuple[OperationResult, ...]:
        if self.left:
            self.left -= 1
            await self._other()
        return await super().multi(operations)


async def opened() -> tuple[MemoryStore, FakeClock]:
    store, clock = MemoryStore(MemoryServer()), FakeClock()
    await ensure_folders(store, ("/config", CHANGES), clock)
    return store, clock


def through(store: Store, clock: FakeClock) -> NodeMutations:
    return NodeMutations(ResolvedStore(store, clock, deadline_s=5), wall_ms=clock.wall_ms)


def setting(value: int, id: str | None, *, also: tuple[Operation, ...] = (), result: str = "") -> Mutation:
    def decide(nodes: Mapping[str, Node]) -> Change | Rejection:
        if PATH in nodes:
            loaded(nodes[PATH].data)
        return Change(data=dumped({"version": 1, "x": value}), also=also, result=result)

    return Mutation(path=PATH, id=id, digest=digest_of("set", (str(value),)), decide=decide)


def clearing(id: str | None) -> Mutation:
    return Mutation(
        path=PATH,
        id=id,
        digest=digest_of("clear", ()),
        decide=lambda _: Change(data=dumped({"version": 1}), empty=True),
    )


async def value_of(store: Store) -> object:
    return loaded((await store.get(PATH)).data).get("x")


async def announced(store: Store) -> int:
    return newest_change((await store.children(CHANGES, current=True)).names)


def carried(outcome: Carried | Rejection) -> Carried:
    assert isinstance(outcome, Carried), outcome
    return outcome


async def test_what_is_changed_is_announced_with_its_path() -> None:
    store, clock = await opened()
    done = carried(await through(store, clock).carry_out(setting(1, "a")))
    assert (done.change, done.version, done.repeated) == (1, 0, False)
    assert await value_of(store) == 1
    assert loaded((await store.get(change_path(1))).data) == {"version": 1, "path": PATH}


async def test_a_repeat_is_answered_and_not_carried_out_though_others_have_written_since() -> None:
    store, clock = await opened()
    mutations = through(store, clock)
    first = carried(await mutations.carry_out(setting(1, "a", result="expires 7")))
    await mutations.carry_out(setting(2, "b"))
    before = await announced(store)
    again = carried(await mutations.carry_out(setting(1, "a", result="expires 8")))
    assert (again.repeated, again.result, first.result) == (True, "expires 7", "expires 7")
    assert loaded(again.data or b"") == {"version": 1, "x": 2}
    assert await value_of(store) == 2
    assert await announced(store) == before


async def test_whoever_dies_between_the_write_and_its_answer_leaves_it_done_once() -> None:
    store, clock = await opened()
    dying = NodeMutations(DiesAfterWriting(store, clock, deadline_s=5), wall_ms=clock.wall_ms)
    with pytest.raises(asyncio.CancelledError):
        await dying.carry_out(setting(1, "a"))
    other = through(store, clock)
    await other.carry_out(setting(2, "b"))
    assert carried(await other.carry_out(setting(1, "a"))).repeated
    assert await value_of(store) == 2


async def test_a_repeat_is_known_through_as_many_later_mutations_as_are_kept() -> None:
    store, clock = await opened()
    mutations = through(store, clock)
    await mutations.carry_out(setting(0, "a"))
    for number in range(1, KEPT):
        await mutations.carry_out(setting(number, f"b{number}"))
    assert carried(await mutations.carry_out(setting(0, "a"))).repeated
    assert await value_of(store) == KEPT - 1


async def test_the_same_id_with_something_else_to_do_is_refused_and_changes_nothing() -> None:
    store, clock = await opened()
    mutations = through(store, clock)
    await mutations.carry_out(setting(1, "a"))
    refused = await mutations.carry_out(setting(2, "a"))
    assert isinstance(refused, Rejection)
    assert refused.code == INVALID
    assert "another change" in refused.message
    assert await value_of(store) == 1


async def test_a_change_to_what_is_so_already_is_remembered_and_not_announced() -> None:
    store, clock = await opened()
    mutations = through(store, clock)
    await mutations.carry_out(setting(1, "a"))
    done = carried(await mutations.carry_out(setting(1, "b")))
    assert (done.change, await announced(store)) == (0, 1)
    await mutations.carry_out(setting(2, "c"))
    assert carried(await mutations.carry_out(setting(1, "b"))).repeated
    assert await value_of(store) == 2


async def test_without_an_id_nothing_is_kept_and_nothing_is_written_twice() -> None:
    store, clock = await opened()
    mutations = through(store, clock)
    assert carried(await mutations.carry_out(setting(1, None))).version == 0
    assert (await store.get(PATH)).data == b'{"version":1,"x":1}'
    assert carried(await mutations.carry_out(setting(1, None))).version == 0
    await store.set(PATH, b'{"version": 1,\n "x": 1}', version=0)
    assert carried(await mutations.carry_out(clearing(None))).data is None
    assert await store.exists(PATH, current=True) is None
    assert carried(await mutations.carry_out(clearing(None))).data is None


async def test_one_who_meets_other_writers_decides_again_by_what_they_wrote() -> None:
    store, clock = await opened()
    other, met = through(store, clock), iter(range(100, 103))

    async def write() -> None:
        number = next(met)
        await other.carry_out(setting(number, f"other{number}"))

    meeting = MeetsAnother(store, clock, write, times=3)
    done = carried(await NodeMutations(meeting, wall_ms=clock.wall_ms).carry_out(setting(1, "a")))
    assert not done.repeated
    assert await value_of(store) == 1
    assert [one.id for one in log_of((await store.get(PATH)).data).records] == ["other100", "other101", "other102", "a"]
    assert await announced(store) == 4


async def test_a_change_that_meets_its_own_repeat_happens_once() -> None:
    store, clock = await opened()
    other = through(store, clock)

    async def repeat() -> None:
        await other.carry_out(setting(1, "a"))
        await other.carry_out(setting(2, "b"))

    meeting = MeetsAnother(store, clock, repeat, times=1)
    done = carried(await NodeMutations(meeting, wall_ms=clock.wall_ms).carry_out(setting(1, "a")))
    assert done.repeated
    assert await value_of(store) == 2


async def test_somebody_who_writes_for_ever_is_named_in_the_end_and_nothing_is_changed() -> None:
    store, clock = await opened()

    async def write() -> None:
        found = await store.exists(PATH, current=True)
        await (store.create(PATH, b"{}") if found is None else store.set(PATH, b"{}", version=found.version))

    meeting = MeetsAnother(store, clock, write, times=10_000)
    refused = await NodeMutations(meeting, wall_ms=clock.wall_ms).carry_out(setting(1, "a"))
    assert isinstance(refused, Rejection)
    assert PATH in refused.message
    assert (await store.get(PATH)).data == b"{}"


async def test_a_refused_change_changes_nothing_and_is_decided_anew_when_it_comes_again() -> None:
    store, clock = await opened()
    mutations = through(store, clock)
    allowed = False

    def decide(_: Mapping[str, Node]) -> Change | Rejection:
        return Change(data=b'{"version":1,"x":1}') if allowed else Rejection(code=INVALID, message="not now")

    mutation = Mutation(path=PATH, id="a", digest=digest_of("set", ()), decide=decide)
    assert isinstance(await mutations.carry_out(mutation), Rejection)
    assert await store.exists(PATH, current=True) is None
    assert await announced(store) == 0
    allowed = True
    assert not carried(await mutations.carry_out(mutation)).repeated


async def test_asked_only_whether_it_may_nothing_is_written() -> None:
    store, clock = await opened()
    done = carried(await through(store, clock).carry_out(setting(1, "a"), validate_only=True))
    assert done.data == b'{"version":1,"x":1}'
    assert await store.exists(PATH, current=True) is None
    assert await announced(store) == 0


async def test_a_node_that_says_nothing_any_more_stays_for_its_log_and_then_goes() -> None:
    store, clock = await opened()
    mutations = through(store, clock)
    await mutations.carry_out(setting(1, "a"))
    await mutations.carry_out(clearing("b"))
    assert carried(await mutations.carry_out(setting(1, "a"))).repeated
    assert await value_of(store) is None
    await clock.advance(REPEATED_MS / 1000 + 1)
    await mutations.carry_out(clearing(None))
    await store.set(PATH, (await store.get(PATH)).data + b" ", version=None)
    assert carried(await mutations.carry_out(clearing("c"))).data is None
    assert await store.exists(PATH, current=True) is not None
    await clock.advance(REPEATED_MS / 1000 + 1)
    assert await mutations.sweep((PATH,)) == 1
    assert await store.exists(PATH, current=True) is None


async def test_a_sweep_takes_nothing_that_says_something_or_may_be_asked_for() -> None:
    store, clock = await opened()
    mutations = through(store, clock)
    await mutations.carry_out(setting(1, "a"))
    await store.create("/config/young", b'{"version":1}')
    young = Mutation(
        path="/config/young",
        id="y",
        digest=digest_of("", ()),
        decide=lambda _: Change(data=b'{"version":1}', empty=True),
    )
    await store.create("/config/hand", b'{"version":1}')
    await store.create("/config/folder", b'{"version":1,"mutations":[]}')
    await store.create("/config/folder/below", b"")
    await store.create("/config/broken", b'{"mutations":')
    await clock.advance(REPEATED_MS / 1000 + 1)
    await mutations.carry_out(young)
    paths = (PATH, "/config/young", "/config/hand", "/config/folder", "/config/broken", "/config/none")
    assert await mutations.sweep(paths) == 0
    assert await value_of(store) == 1


async def test_a_folder_of_others_stays_and_says_nothing() -> None:
    store, clock = await opened()
    mutations = through(store, clock)
    await mutations.carry_out(setting(1, None))
    await store.create(f"{PATH}/below", b"")
    assert not isinstance(await mutations.carry_out(clearing(None)), Rejection)
    assert (await store.get(PATH)).data == b""


async def test_a_guard_that_is_gone_prevents_the_change() -> None:
    store, clock = await opened()
    refused = await through(store, clock).carry_out(setting(1, "a", also=(Check("/guard"),)))
    assert isinstance(refused, Rejection)
    assert await store.exists(PATH, current=True) is None


async def test_folders_that_are_missing_are_made_with_it() -> None:
    store, clock = await opened()
    mutation = Mutation(
        path="/config/u/x",
        id="a",
        digest=digest_of("", ()),
        decide=lambda nodes: Change(data=b"{}", also=() if "/config/u" in nodes else (Create("/config/u", b""),)),
        reads=("/config/u",),
    )
    mutations = through(store, clock)
    assert carried(await mutations.carry_out(mutation)).version == 0
    assert carried(await mutations.carry_out(mutation)).repeated


async def test_a_node_that_nobody_can_read_is_refused_with_what_helps() -> None:
    store, clock = await opened()
    await store.create(PATH, b"not JSON")
    for mutation in (setting(1, "a"), setting(1, None)):
        refused = await through(store, clock).carry_out(mutation)
        assert isinstance(refused, Rejection)
        assert "correct the node" in refused.message
    assert (await store.get(PATH)).data == b"not JSON"


async def test_only_the_newest_announcements_stay() -> None:
    store, clock = await opened()
    mutations = through(store, clock)
    for number in range(CHANGES_KEPT + 20):
        await mutations.carry_out(setting(number, None))
    names = (await store.children(CHANGES, current=True)).names
    assert len(names) == CHANGES_KEPT
    assert newest_change(names) == CHANGES_KEPT + 20


async def test_followers_know_what_changed_and_read_everything_where_they_missed_something() -> None:
    store, clock = await opened()
    mutations, seen, reader = through(store, clock), Announced(), StoreReader(store)

    async def look() -> frozenset[str] | None:
        return await seen.look(reader, (await store.children(CHANGES, current=True)).names)

    assert await look() is None
    assert await look() == frozenset()
    await mutations.carry_out(setting(1, None))
    await mutations.carry_out(setting(2, None))
    assert await look() == {PATH}
    await store.create(f"{CHANGES}/by-hand", b"")
    assert await look() is None
    await mutations.carry_out(setting(3, None))
    assert await look() == {PATH}
    await store.create(change_path(7), b'{"version":1,"path":"/config/x"}')
    assert await look() is None
    await store.create(change_path(8), b"junk")
    assert await look() is None
    await mutations.carry_out(setting(4, None))
    assert await look() == {PATH}


async def test_followers_read_everything_where_somebody_emptied_the_folder_and_numbers_begin_anew() -> None:
    store, clock = await opened()
    mutations, seen, reader = through(store, clock), Announced(), StoreReader(store)
    for value in range(3):
        await mutations.carry_out(setting(value, None))

    async def look() -> frozenset[str] | None:
        return await seen.look(reader, (await store.children(CHANGES, current=True)).names)

    assert await look() is None
    for name in (await store.children(CHANGES, current=True)).names:
        await store.delete(f"{CHANGES}/{name}", version=None)
    # Between two looks somebody who knows of no number announces the first one, whose name was seen.
    await through(store, clock).carry_out(setting(9, None))
    assert await look() is None
    assert await look() == frozenset()
    await through(store, clock).carry_out(setting(10, None))
    assert await look() == {PATH}


async def test_an_unreadable_answer_of_a_decision_is_no_crash() -> None:
    store, clock = await opened()

    def decide(_: Mapping[str, Node]) -> Change | Rejection:
        raise MalformedNodeError("the neighbour is broken")

    refused = await through(store, clock).carry_out(Mutation(path=PATH, id=None, digest="", decide=decide))
    assert isinstance(refused, Rejection)
    assert "the neighbour is broken" in refused.message
