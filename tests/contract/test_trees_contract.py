"""Whole subtrees: read in pages, and watched from the moment of the read where the store can."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from regnum_coordination.errors import InvalidRequest, SessionExpired
from regnum_coordination.port import Create, Delete, Node, Set, Store, TreeChange, TreePage
from regnum_testing.coordination_worlds import World
from regnum_testing.waiting import within


async def _read(store: Store, path: str) -> tuple[dict[str, Node], int | None]:
    """All nodes of all pages, and their revision; parents come first and nothing twice."""
    nodes: dict[str, Node] = {}
    revisions: set[int | None] = set()
    async with aclosing(store.read_tree(path)) as pages:
        async for page in pages:
            assert not nodes.keys() & page.nodes.keys()
            nodes.update(page.nodes)
            revisions.add(page.revision)
            for one in page.nodes:
                folder = one.rpartition("/")[0]
                assert one == path or folder in nodes or folder in {"", path}
    (revision,) = revisions
    return nodes, revision


async def _skip_unless_watched(store: Store) -> None:
    if not store.tree_watch_offered:
        pytest.skip("this store offers no watch of a tree")


def _data(change: TreeChange) -> dict[str, bytes | None]:
    return {path: None if node is None else node.data for path, node in change.changed.items()}


async def _begin(store: Store, path: str) -> AsyncGenerator[TreeChange, None]:
    _, revision = await _read(store, path)
    assert revision is not None
    return store.watch_tree(path, after_revision=revision)


async def test_a_tree_is_read_with_all_below_it_and_nothing_beside_it(store: Store) -> None:
    for path in ("/a/b/c", "/a/b/d", "/a-b", "/a.b", "/a0", "/ab/x", "/a/e-f/g", "/a/e/h"):
        await store.create(path, path.encode(), make_parents=True)
    await store.set("/a/b/c", b"new", version=0)
    nodes, revision = await _read(store, "/a")
    assert sorted(nodes) == ["/a", "/a/b", "/a/b/c", "/a/b/d", "/a/e", "/a/e-f", "/a/e-f/g", "/a/e/h"]
    assert (nodes["/a/b/c"].data, nodes["/a/b/c"].stat.version) == (b"new", 1)
    assert nodes["/a/b/d"].stat.creation_id == (await store.get("/a/b/d")).stat.creation_id
    assert (revision is not None) is store.tree_watch_offered


async def test_the_root_is_read_without_itself_and_what_drivers_keep(store: Store) -> None:
    await store.create("/a/b", b"1", make_parents=True)
    name = (await store.create("/a/s", b"", sequential=True)).path
    assert sorted((await _read(store, "/"))[0]) == ["/a", "/a/b", name]


async def test_an_absent_tree_has_one_empty_page(store: Store) -> None:
    assert (await _read(store, "/none"))[0] == {}


async def test_a_large_tree_comes_in_pages_and_whole(world: World, store: Store) -> None:
    """Also beside values much larger than those that the size of the first pages went by."""
    await store.create("/t", b"")
    groups = [(Create(f"/t/{topic:02d}", b"x" * 10),) for topic in range(30)]
    groups += [(Create(f"/t/{topic:02d}/{number}", b"y" * 10),) for topic in range(30) for number in range(100)]
    groups += [(Create(f"/t/99{number}", b"z" * 200_000),) for number in range(20)]
    await store.write_batch(groups)
    reader = await world.open()
    nodes, _ = await _read(reader, "/t")
    assert set(nodes) == {"/t", *(path for group in groups for path in [group[0].path])}
    assert sum(len(node.data) for node in nodes.values()) == 30 * 10 + 3_000 * 10 + 20 * 200_000


async def test_a_read_that_is_given_up_leaves_nothing_behind(store: Store) -> None:
    await store.create("/t", b"")
    await store.write_batch([(Create(f"/t/{number}", b"x" * 500),) for number in range(2_500)])
    async with aclosing(store.read_tree("/t")) as pages:
        first = await anext(pages)
        assert isinstance(first, TreePage)
    assert len((await _read(store, "/t"))[0]) == 2_501


async def test_a_tree_watch_is_said_to_be_offered_or_refused(store: Store) -> None:
    if store.tree_watch_offered:
        return
    with pytest.raises(InvalidRequest):
        await anext(store.watch_tree("/a", after_revision=1))


async def test_a_tree_watch_misses_nothing_after_the_read(world: World, store: Store) -> None:
    await _skip_unless_watched(store)
    await store.create("/t/a", b"0", make_parents=True)
    await store.create("/t/b", b"0")
    nodes, revision = await _read(store, "/t")
    other = await world.open()
    # Before the watch has begun.
    stat = await other.set("/t/a", b"1", version=0)
    await other.delete("/t/b", version=0)
    assert revision is not None
    async with aclosing(store.watch_tree("/t", after_revision=revision)) as changes:
        first = await within(anext(changes))
        assert (_data(first), first.revision) == ({"/t/a": b"1"}, stat.modification_id)
        node = first.changed["/t/a"]
        assert node is not None
        assert (node.stat.version, node.stat.creation_id) == (1, nodes["/t/a"].stat.creation_id)
        assert _data(await within(anext(changes))) == {"/t/b": None}
        await other.create("/t/b", b"again")
        third = await within(anext(changes))
        assert _data(third) == {"/t/b": b"again"}
        assert third.changed["/t/b"] != nodes["/t/b"]


async def test_no_change_of_a_tree_is_merged_and_a_transaction_is_one_change(world: World, store: Store) -> None:
    await _skip_unless_watched(store)
    await store.create("/t/a", b"0", make_parents=True)
    other = await world.open()
    async with aclosing(await _begin(store, "/t")) as changes:
        for number in range(20):
            await other.set("/t/a", str(number).encode(), version=number)
        await other.multi([Create("/t/b", b"b"), Set("/t/a", b"last", 20), Create("/t/b/c", b"c")])
        await other.multi([Delete("/t/b/c", 0), Set("/t/b", b"", 0)])
        seen = [await within(anext(changes)) for _ in range(22)]
    assert [_data(change) for change in seen] == [
        *({"/t/a": str(number).encode()} for number in range(20)),
        {"/t/b": b"b", "/t/a": b"last", "/t/b/c": b"c"},
        {"/t/b/c": None, "/t/b": b""},
    ]
    assert [change.revision for change in seen] == sorted({change.revision for change in seen})


async def test_a_tree_watch_is_silent_about_its_neighbours(world: World, store: Store) -> None:
    await _skip_unless_watched(store)
    await store.create("/t/a", b"", make_parents=True)
    other = await world.open()
    async with aclosing(await _begin(store, "/t")) as changes, aclosing(await _begin(store, "/")) as everything:
        await other.create("/t-neighbour", b"")
        await other.create("/t0", b"")
        await other.set("/t", b"itself", version=0)
        assert _data(await within(anext(changes))) == {"/t": b"itself"}
        paths = [path for _ in range(3) for path in (await within(anext(everything))).changed]
        assert paths == ["/t-neighbour", "/t0", "/t"]


async def test_a_tree_watch_shows_what_goes_with_a_session(world: World, store: Store) -> None:
    await _skip_unless_watched(store)
    await store.create("/t", b"")
    other = await world.open()
    created = await other.create("/t/e", b"", ephemeral=True)
    async with aclosing(await _begin(store, "/t")) as changes:
        await other.close()
        change = await within(anext(changes))
        assert _data(change) == {"/t/e": None}
        assert change.revision > created.stat.modification_id


async def test_a_tree_watch_goes_on_after_the_connection_was_away(world: World, store: Store) -> None:
    await _skip_unless_watched(store)
    await store.create("/t/a", b"0", make_parents=True)
    other = await world.open()
    async with aclosing(await _begin(store, "/t")) as changes:
        await other.set("/t/a", b"1", version=0)
        assert _data(await within(anext(changes))) == {"/t/a": b"1"}
        await world.interrupt(store)
        await other.set("/t/a", b"2", version=1)
        await other.set("/t/a", b"3", version=2)
        await world.restore(store)
        assert [_data(await within(anext(changes))) for _ in range(2)] == [{"/t/a": b"2"}, {"/t/a": b"3"}]


async def test_tree_reads_and_watches_end_with_the_session(world: World, store: Store) -> None:
    await store.create("/t", b"")
    watched = store.watch_tree("/t", after_revision=0) if store.tree_watch_offered else None
    await world.expire(store)
    with pytest.raises(SessionExpired):
        await store.create("/b", b"")
    with pytest.raises(SessionExpired):
        await within(anext(store.read_tree("/t")))
    if watched is not None:
        with pytest.raises(SessionExpired):
            await within(anext(watched))
