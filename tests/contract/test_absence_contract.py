"""Checks of absence: a write that happens only while some node is not there (an exception to safety rule S5)."""

import asyncio
from contextlib import aclosing

import pytest
from regnum_coordination.errors import InvalidRequest, NodeExists, NodeFailure, NoNode
from regnum_coordination.port import (
    Absent,
    Check,
    Create,
    Delete,
    Fenced,
    Group,
    Operation,
    OperationResult,
    Refused,
    Set,
    Store,
    Written,
)
from regnum_testing.coordination_worlds import World
from regnum_testing.waiting import within


@pytest.fixture
async def filled(store: Store) -> Store:
    await store.create("/f", b"f")
    await store.create("/f/a", b"a")
    await store.create("/other", b"o")
    return store


async def test_what_is_absent_lets_the_write_happen(filled: Store) -> None:
    absent, written = await filled.multi([Absent("/f/x"), Set("/other", b"O", 0)])
    assert absent == OperationResult("/f/x", None)
    assert written.stat is not None
    assert written.stat == await filled.exists("/other", current=True)
    assert await filled.exists("/f/x", current=True) is None
    assert (await filled.children("/f", current=True)).names == ("a",)


async def test_what_is_there_refuses_the_write(filled: Store) -> None:
    before = await filled.children("/f", current=True)
    for operations in ([Absent("/f/a"), Set("/other", b"O", 0)], [Set("/other", b"O", 0), Absent("/f/a")]):
        with pytest.raises(NodeExists) as caught:
            await filled.multi(operations)
        assert caught.value.path == "/f/a"
    assert (await filled.get("/other", current=True)).data == b"o"
    assert (await filled.get("/f/a", current=True)).stat.version == 0
    assert (await filled.children("/f", current=True)).names == before.names


async def test_several_absences_and_nothing_else(filled: Store) -> None:
    results = await filled.multi([Absent("/f/x"), Absent("/f/y"), Absent("/z"), Absent("/f/x")])
    assert results == tuple(OperationResult(path, None) for path in ("/f/x", "/f/y", "/z", "/f/x"))
    with pytest.raises(NodeExists) as caught:
        await filled.multi([Absent("/f/x"), Absent("/f/a"), Absent("/other")])
    assert caught.value.path == "/f/a"


async def test_a_node_that_is_gone_is_absent(filled: Store) -> None:
    await filled.delete("/f/a", version=0)
    await filled.multi([Absent("/f/a"), Create("/f/b", b"")])
    assert (await filled.children("/f", current=True)).names == ("b",)


@pytest.mark.parametrize("missing", ["/none/x", "/none/x/y", "/f/none/x"])
async def test_below_what_is_missing_nothing_is_there(filled: Store, missing: str) -> None:
    await filled.multi([Absent(missing), Set("/other", b"O", 0)])
    outcomes = await filled.write_batch(
        [(Absent(f"{missing}{number}"), Create(f"/n{number}", b"")) for number in range(5)]
    )
    assert {type(outcome) for outcome in outcomes} == {Written}
    assert (await filled.children("/", current=True)).names == ("f", "n0", "n1", "n2", "n3", "n4", "other")
    assert (await filled.children("/f", current=True)).names == ("a",)


async def test_far_below_what_is_missing_it_holds_or_is_refused_for_good(filled: Store) -> None:
    """A driver may look at every folder above (etcd); what counts as unknown would be repeated for ever."""
    group = (Absent("/none" * 150), Create("/made", b""))
    try:
        await filled.multi(group)
    except InvalidRequest:
        with pytest.raises(InvalidRequest):
            await filled.write_batch([group])
        assert await filled.exists("/made", current=True) is None


async def test_a_folder_that_the_same_multi_creates_or_deletes(filled: Store) -> None:
    await filled.multi([Absent("/g/a"), Create("/g", b""), Absent("/g/b"), Create("/g/c", b"")])
    assert (await filled.children("/g", current=True)).names == ("c",)
    await filled.multi([Absent("/g/a"), Delete("/g/c", 0), Delete("/g", 0), Absent("/g/b")])
    assert await filled.exists("/g", current=True) is None


@pytest.mark.parametrize("path", ["/e/x", "/e/x/y"])
async def test_below_an_ephemeral_node_it_fails_as_a_creation_does(filled: Store, path: str) -> None:
    made = Create("/e", b"", ephemeral=True)
    with pytest.raises(NoNode) as caught:
        await filled.multi([made, Absent(path)])
    assert caught.value.path == path
    await filled.multi([made])
    with pytest.raises(NoNode) as caught:
        await filled.multi([Absent(path), Set("/other", b"O", 0)])
    assert caught.value.path == path
    assert (await filled.get("/other", current=True)).stat.version == 0
    await filled.multi([Delete("/e", 0), Absent(path)])


async def test_the_first_operation_that_fails_is_named_beside_checks_of_all_kinds(filled: Store) -> None:
    failing: list[Operation] = [Check("/none"), Absent("/other"), Create("/f", b"")]
    for start, (error, path) in enumerate([(NoNode, "/none"), (NodeExists, "/other"), (NodeExists, "/f")]):
        with pytest.raises(error) as caught:
            await filled.multi([Absent("/f/x"), Check("/f/a", 0), *failing[start:]])
        assert caught.value.path == path
    with pytest.raises(NoNode):
        await filled.multi([Absent("/none"), Check("/none")])


async def test_in_a_batch_it_harms_no_neighbour(filled: Store) -> None:
    groups: list[Group] = [(Absent(f"/f/x{number}"), Create(f"/f/y{number}", b"")) for number in range(400)]
    groups[17] = (Absent("/f/a"), Create("/f/y17", b""))
    groups[300] = (Absent("/f/x300"), Absent("/other"), Create("/f/y300", b""))
    groups[301] = (Absent("/f/x301"), Check("/f/a", 4), Create("/f/y301", b""))
    outcomes = await filled.write_batch(groups, fence=Check("/other", 0))
    refused = {index: outcome.error for index, outcome in enumerate(outcomes) if isinstance(outcome, Refused)}
    assert {index: error.path for index, error in refused.items() if isinstance(error, NodeFailure)} == {
        17: "/f/a",
        300: "/other",
        301: "/f/a",
    }
    assert isinstance(refused[17], NodeExists)
    assert isinstance(refused[300], NodeExists)
    written = [outcome for outcome in outcomes if isinstance(outcome, Written)]
    assert len(written) == 397
    assert {outcome.results[0].stat for outcome in written} == {None}
    assert len((await filled.children("/f", current=True)).names) == 1 + 397


async def test_in_a_batch_it_sees_the_groups_before_it_and_not_those_behind(filled: Store) -> None:
    outcomes = await filled.write_batch(
        [
            (Absent("/f/x"), Create("/before", b"")),
            (Create("/f/x", b""),),
            (Absent("/f/x"), Create("/between", b"")),
            (Delete("/f/x", 0),),
            (Absent("/f/x"), Create("/after", b"")),
        ]
    )
    assert [type(outcome) for outcome in outcomes] == [Written, Written, Refused, Written, Written]
    assert (await filled.children("/", current=True)).names == ("after", "before", "f", "other")


async def test_a_fence_holds_for_it(filled: Store) -> None:
    assert await filled.write_batch([(Absent("/f/x"), Create("/n", b""))], fence=Check("/other", 1)) == (Fenced(),)
    assert await filled.exists("/n", current=True) is None


async def test_watches_of_the_same_session_show_nothing_of_it(filled: Store) -> None:
    """On ZooKeeper the node comes and goes within the transaction, and the server's watches fire."""
    async with (
        aclosing(filled.watch_node("/f/x")) as node,
        aclosing(filled.watch_node("/f")) as folder,
        aclosing(filled.watch_children("/f")) as children,
        aclosing(filled.watch_children("/")) as root,
    ):
        assert await within(anext(node)) is None
        assert await within(anext(folder)) is not None
        assert (await within(anext(children))).names == ("a",)
        assert (await within(anext(root))).names == ("f", "other")
        for version in range(3):
            await filled.multi([Absent("/f/x"), Absent("/f/y"), Absent("/none/x"), Set("/other", b"", version)])
            await filled.write_batch([(Absent(f"/f/{number}"), Check("/f")) for number in range(20)])
        # What is answered next is the next change of each, and not one of those.
        waiting = [asyncio.ensure_future(anext(watch)) for watch in (node, folder, children, root)]
        await filled.create("/f/x", b"1")
        await filled.set("/f", b"F", version=0)
        seen, changed, names = [await within(one) for one in waiting[:3]]
        assert seen.data == b"1"
        assert changed.data == b"F"
        assert names.names == ("a", "x")
        await filled.create("/g", b"")
        assert (await within(waiting[3])).names == ("f", "g", "other")


async def test_a_child_that_bounced_beside_it_is_answered(world: World, filled: Store) -> None:
    """What another session did in the same moment must not pass for a check of absence."""
    other = await world.open()
    async with aclosing(filled.watch_children("/f")) as children:
        first = await within(anext(children))
        for version in range(10):
            waiting = asyncio.ensure_future(anext(children))
            await filled.multi([Absent("/f/x"), Set("/other", b"", version)])
            await other.delete("/f/a", version=0)
            await other.create("/f/a", b"")
            await filled.multi([Absent("/f/x"), Check("/f")])
            made = (await filled.get("/f/a", current=True)).stat.creation_id
            found = await within(waiting)
            while found.names != ("a",) or found.children_id < made:
                found = await within(anext(children))
            assert found.children_id > first.children_id


async def test_watches_of_other_sessions_see_the_last_state_and_never_the_node(world: World, filled: Store) -> None:
    other = await world.open()
    async with (
        aclosing(other.watch_node("/f/x")) as node,
        aclosing(other.watch_children("/f")) as children,
    ):
        assert await within(anext(node)) is None
        assert (await within(anext(children))).names == ("a",)
        waiting = asyncio.ensure_future(anext(node))
        for version in range(10):
            await filled.multi([Absent("/f/x"), Set("/other", b"", version)])
        await filled.create("/f/z", b"")
        while (names := (await within(anext(children))).names) != ("a", "z"):
            assert names == ("a",)
        await filled.create("/f/x", b"real")
        seen = await within(waiting)
        assert seen is not None
        assert seen.data == b"real"


async def test_of_a_check_of_absence_and_a_creation_exactly_one_comes_first(world: World, filled: Store) -> None:
    """Either the check holds, and the node is created after it, or the node was there and nothing was written."""
    other = await world.open()
    for number in range(40):
        path, mark = f"/f/r{number}", f"/f/m{number}"
        checking = filled.multi([Absent(path), Create(mark, b"")])
        creating = other.create(path, b"")
        racing = (checking, creating) if number % 2 else (creating, checking)
        answers = await asyncio.gather(*racing, return_exceptions=True)
        checked, created = answers if number % 2 else reversed(answers)
        assert not isinstance(created, BaseException)
        marked = await filled.exists(mark, current=True)
        if isinstance(checked, BaseException):
            assert isinstance(checked, NodeExists)
            assert checked.path == path
            assert marked is None
        else:
            assert marked is not None
            assert marked.creation_id < created.stat.creation_id


async def test_of_two_that_each_rely_on_the_absence_of_what_the_other_creates_one_happens(
    world: World, filled: Store
) -> None:
    """Write skew, which two sessions would run into if absence were only read."""
    other = await world.open()
    for number in range(20):
        one, two = f"/f/one{number}", f"/f/two{number}"
        answers = await asyncio.gather(
            filled.multi([Absent(one), Create(two, b"")]),
            other.multi([Absent(two), Create(one, b"")]),
            return_exceptions=True,
        )
        assert sorted(isinstance(answer, NodeExists) for answer in answers) == [False, True]
