"""A DeleteAcls whose filter means many patterns, repeated: it removes what it chose when it first came (rule S20)."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, cast

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Operation as Write
from regnum_coordination.port import OperationResult
from regnum_coordination.recipes.folders import ensure_folders
from regnum_coordination.recipes.resolved_store import ResolvedStore
from regnum_election.acls.calls import AclCalls, Removed
from regnum_election.reign.reign import DeposedError
from regnum_election.state.acl_choices import CHOICES_MAX, Choice, Choices
from regnum_model.access import Operation, ResourceType
from regnum_model.acls.bindings import AclBinding, Entry, PatternType, Permission, ResourcePattern
from regnum_model.acls.chosen import FOLDER, PART_BYTES_MAX
from regnum_model.acls.filters import AclFilter
from regnum_model.acls.nodes import FOLDERS, path_of
from regnum_model.mutations import REPEATED_MS
from regnum_model.quotas import CHANGES
from regnum_service.errors import RegnumError
from regnum_testing.clock import FakeClock

EVERYTHING_OF_A = AclFilter(principal="User:a")


class Reigning(ResolvedStore):
    """A store that is always connected, until its reign ends before a write."""

    writes_left = 1_000_000

    async def until_connected(self) -> None:
        """It is."""

    async def multi(self, operations: Sequence[Write]) -> tuple[OperationResult, ...]:
        if self.writes_left == 0:
            raise DeposedError("the reign is over")
        self.writes_left -= 1
        return await super().multi(operations)


def rule(name: str, operation: Operation = Operation.READ, who: str = "User:a") -> AclBinding:
    return AclBinding(
        pattern=ResourcePattern(type=ResourceType.TOPIC, name=name, pattern=PatternType.LITERAL),
        entry=Entry(principal=who, host="*", operation=operation, permission=Permission.ALLOW),
    )


class World:
    """A store, and the controllers that come one after the other."""

    def __init__(self) -> None:
        self.memory, self.clock = MemoryStore(MemoryServer()), FakeClock()
        self.store = self.reigning()

    def reigning(self) -> Reigning:
        return Reigning(self.memory, self.clock, deadline_s=5)

    def choices(self) -> Choices:
        return Choices(cast("Any", self.store), self.clock.wall_ms)

    def calls(self, store: Reigning | None = None) -> AclCalls:
        return AclCalls(cast("Any", store or self.store), self.clock.wall_ms)

    async def create(self, *rules: AclBinding) -> None:
        await self.calls().create(rules, validate_only=False, wait_s=5)

    async def delete(self, *, id: str | None, wanted: AclFilter = EVERYTHING_OF_A, dry: bool = False) -> Removed:
        (removed,) = await self.calls().delete([wanted], validate_only=dry, wait_s=5, mutation=id)
        return removed

    async def all(self) -> set[AclBinding]:
        return set((await self.calls().describe(AclFilter(), after="", most=1_000, wait_s=5)).bindings)

    async def kept(self) -> set[str]:
        return set((await self.memory.children(FOLDER)).names)


@pytest.fixture
async def world() -> World:
    world = World()
    await ensure_folders(world.memory, (CHANGES, FOLDER, *FOLDERS), world.clock)
    return world


async def test_a_repeat_leaves_patterns_alone_that_fit_only_since(world: World) -> None:
    await world.create(rule("one"))
    first = await world.delete(id="m")
    assert first.bindings == (rule("one"),)
    await world.create(rule("two"), rule("one", Operation.WRITE), rule("one"))
    again = await world.delete(id="m")
    assert (again.bindings, again.before, again.refused) == ((), 1, None)
    assert await world.all() == {rule("two"), rule("one", Operation.WRITE), rule("one")}


async def test_a_repeat_of_what_chose_nothing_removes_nothing(world: World) -> None:
    assert (await world.delete(id="m")).bindings == ()
    await world.create(rule("one"))
    again = await world.delete(id="m")
    assert (again.bindings, again.before) == ((), 0)
    assert await world.all() == {rule("one")}
    assert (await world.delete(id="another")).bindings == (rule("one"),)


async def test_a_controller_that_dies_at_any_write_leaves_a_choice_that_its_successor_finishes(world: World) -> None:
    ends = 0
    for writes in range(20):
        old = {rule("one"), rule("two"), rule("two", Operation.WRITE), rule("three")}
        since = {rule("four"), rule("two", Operation.DELETE), rule("three", Operation.DELETE)}
        await world.create(*old, rule("two", who="User:b"))
        dying = world.reigning()
        dying.writes_left = writes
        id = f"m{writes}"
        with suppress(RegnumError):
            await world.calls(dying).delete([EVERYTHING_OF_A], validate_only=False, wait_s=5, mutation=id)
            ends += 1
        left = len(old & await world.all())
        await world.create(*since)
        again = await world.delete(id=id)
        assert again.refused is None
        # Before the choice stood, nothing had been done, and the repeat is a call like any other.
        chosen = old if writes else old | since
        assert len(again.bindings) + again.before == len(chosen)
        assert set(again.bindings) <= chosen
        assert len(again.bindings) == (left if writes else len(chosen))
        assert await world.all() == ({rule("two", who="User:b")} | (since if writes else set()))
        await world.delete(id=None)
        if ends > 1:
            break
    assert ends == 2, "the call was let finish"
    assert writes > 3, "it died at some writes before"


async def test_a_rule_that_fits_and_comes_while_the_others_go_stays_for_the_repeat_too(world: World) -> None:
    await world.create(rule("one"), rule("two"))
    dying = world.reigning()
    dying.writes_left = 2
    with pytest.raises(RegnumError):
        await world.calls(dying).delete([EVERYTHING_OF_A], validate_only=False, wait_s=5, mutation="m")
    (left,) = await world.all()
    await world.create(rule(left.pattern.name, Operation.WRITE))
    assert (await world.delete(id="m")).bindings == (left,)
    assert await world.all() == {rule(left.pattern.name, Operation.WRITE)}


async def test_a_choice_of_any_size_is_kept_in_nodes_of_a_small_one(world: World) -> None:
    chosen = [(rule(f"{number:03}" * 60).pattern, frozenset({f"{number:016x}"})) for number in range(900)]

    async def choose() -> Any:
        for one in chosen:
            yield one

    made = await world.choices().of("m", "d" * 32, choose)
    assert isinstance(made, Choice)
    nodes = {name: (await world.memory.get(f"{FOLDER}/{name}")).data for name in await world.kept()}
    assert len(nodes) > 2
    assert max(map(len, nodes.values())) < 2 * PART_BYTES_MAX
    again = await world.choices().known("m", "d" * 32)
    assert isinstance(again, Choice)
    assert list(again.chosen) == chosen
    # A part that is gone is said, and nothing is guessed.
    await world.memory.delete(f"{FOLDER}/{next(name for name in nodes if name.endswith('.1'))}", version=0)
    lost = await world.choices().known("m", "d" * 32)
    assert not isinstance(lost, Choice)
    assert lost is not None
    assert "another mutation id" in lost.message


async def test_a_choice_that_came_late_counts_and_parts_of_another_are_not_taken_for_its_own(world: World) -> None:
    long = [(rule(f"{number:03}" * 60).pattern, frozenset({f"{number:016x}"})) for number in range(400)]

    async def earlier() -> Any:
        for one in long:
            yield one

    async def later() -> Any:
        # The write of a call that was given up arrives while its repeat chooses.
        await world.choices().of("m", "d" * 32, earlier)
        yield rule("new").pattern, frozenset({"0" * 16})

    made = await world.choices().of("m", "d" * 32, later)
    assert isinstance(made, Choice)
    assert list(made.chosen) == long
    part = next(name for name in await world.kept() if name.endswith(".1"))
    await world.memory.set(f"{FOLDER}/{part}", b'{"version":1,"at":1,"chosen":{}}', version=0)
    refused = await world.choices().known("m", "d" * 32)
    assert refused is not None
    assert not isinstance(refused, Choice)
    assert "another choice" in refused.message


async def test_an_id_that_was_used_for_another_filter_is_refused_and_a_dry_run_keeps_nothing(world: World) -> None:
    await world.create(rule("one"))
    assert (await world.delete(id="m", dry=True)).bindings == (rule("one"),)
    assert await world.kept() == set()
    await world.delete(id="m")
    refused = (await world.delete(id="m", wanted=AclFilter(principal="User:b"))).refused
    assert refused is not None
    assert "used for another change" in refused.message
    assert (await world.delete(id="m", dry=True)).before == 1


async def test_choices_go_when_nobody_repeats_them_any_more_and_the_older_ones_when_there_are_too_many(
    world: World,
) -> None:
    await world.create(rule("one"))
    await world.delete(id="old")
    world.clock.skip(REPEATED_MS / 2000)
    await world.delete(id="young")
    # A part whose head was never written, because the controller died.
    await world.memory.create(f"{FOLDER}/{'a' * 32}.1", b'{"version":1,"at":0,"chosen":{}}')
    world.clock.skip(REPEATED_MS / 2000 + 1)
    assert await world.choices().sweep() == 2
    assert len(await world.kept()) == 1
    for number in range(CHOICES_MAX):
        world.clock.skip(0.001)
        await world.delete(id=f"m{number}")
    assert CHOICES_MAX / 2 <= len(await world.kept()) <= CHOICES_MAX
    await world.create(rule("one"))
    assert (await world.delete(id=f"m{CHOICES_MAX - 1}")).bindings == (), "the youngest are known"


async def test_a_pattern_that_nobody_could_read_loses_what_fits_when_it_was_mended(world: World) -> None:
    await world.create(rule("one"))
    path = path_of(rule("one").pattern)
    good = await world.memory.get(path)
    await world.memory.set(path, b"junk", version=good.stat.version)
    refused = (await world.delete(id="m")).refused
    assert refused is not None
    assert "cannot be read" in refused.message
    await world.memory.set(path, good.data, version=(await world.memory.get(path)).stat.version)
    assert (await world.delete(id="m")).bindings == (rule("one"),)
