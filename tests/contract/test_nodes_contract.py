"""Nodes: creation modes, versions, conditional writes, folders, paths."""

import pytest
from regnum_coordination.errors import BadVersion, InvalidRequest, NodeExists, NoNode, NotEmpty
from regnum_coordination.port import Store
from regnum_testing.coordination_worlds import World

BIG = 900_000


async def test_created_node_is_read_back(store: Store) -> None:
    created = await store.create("/a", b"one")
    node = await store.get("/a", current=True)
    assert (created.path, node.data) == ("/a", b"one")
    assert node.stat.version == 0
    assert node.stat.ephemeral_owner is None
    assert node.stat.creation_id == created.stat.creation_id == node.stat.modification_id


async def test_create_of_an_existing_path(store: Store) -> None:
    await store.create("/a", b"")
    with pytest.raises(NodeExists) as caught:
        await store.create("/a", b"")
    assert caught.value.path == "/a"


async def test_create_without_parent(store: Store) -> None:
    with pytest.raises(NoNode) as caught:
        await store.create("/a/b", b"")
    assert caught.value.path == "/a/b"
    assert await store.exists("/a/b") is None


async def test_make_parents_creates_them_empty_and_keeps_those_there(store: Store) -> None:
    await store.create("/a", b"kept")
    await store.create("/a/b/c/d", b"leaf", make_parents=True)
    assert [node and node.data for node in await store.get_many(["/a", "/a/b", "/a/b/c", "/a/b/c/d"])] == [
        b"kept",
        b"",
        b"",
        b"leaf",
    ]


async def test_make_parents_does_not_replace_the_node(store: Store) -> None:
    await store.create("/a/b", b"first", make_parents=True)
    with pytest.raises(NodeExists):
        await store.create("/a/b", b"second", make_parents=True)
    assert (await store.get("/a/b")).data == b"first"


async def test_ephemeral_parent_takes_no_children(store: Store) -> None:
    await store.create("/e", b"", ephemeral=True)
    with pytest.raises(NoNode):
        await store.create("/e/child", b"")


async def test_sequential_names_grow_and_are_not_used_again(store: Store) -> None:
    await store.create("/q", b"")
    first = await store.create("/q/item-", b"", sequential=True)
    second = await store.create("/q/item-", b"", sequential=True)
    await store.delete(second.path, version=0)
    third = await store.create("/q/other-", b"", sequential=True, ephemeral=True)
    numbers = [int(path[-10:]) for path in (first.path, second.path, third.path)]
    assert numbers[0] < numbers[1] < numbers[2]
    assert first.path == f"/q/item-{numbers[0]:010d}"
    assert third.stat.ephemeral_owner == store.session_id


async def test_sequential_without_parent(store: Store) -> None:
    with pytest.raises(NoNode):
        await store.create("/q/item-", b"", sequential=True)


async def test_versions_count_sets_from_zero(store: Store) -> None:
    await store.create("/a", b"0")
    assert (await store.set("/a", b"1", version=0)).version == 1
    stat = await store.set("/a", b"2", version=1)
    node = await store.get("/a")
    assert (node.data, node.stat.version) == (b"2", 2)
    assert stat == node.stat or (stat.version, stat.creation_id, stat.modification_id) == (
        node.stat.version,
        node.stat.creation_id,
        node.stat.modification_id,
    )


async def test_set_at_version_zero_is_conditional(store: Store) -> None:
    """The classic mistake takes 0 for "any version"."""
    await store.create("/a", b"0")
    await store.set("/a", b"1", version=None)
    with pytest.raises(BadVersion) as caught:
        await store.set("/a", b"2", version=0)
    assert (caught.value.path, caught.value.expected) == ("/a", 0)
    assert caught.value.found in {None, 1}
    assert (await store.get("/a")).data == b"1"


async def test_set_of_nothing(store: Store) -> None:
    for version in (None, 0):
        with pytest.raises(NoNode):
            await store.set("/a", b"", version=version)


async def test_delete_at_a_version(store: Store) -> None:
    await store.create("/a", b"")
    await store.set("/a", b"1", version=0)
    with pytest.raises(BadVersion):
        await store.delete("/a", version=0)
    await store.delete("/a", version=1)
    assert await store.exists("/a") is None
    with pytest.raises(NoNode):
        await store.delete("/a", version=None)


async def test_delete_of_a_folder_with_children(store: Store) -> None:
    await store.create("/a/b/c", b"", make_parents=True)
    for version in (None, 0):
        with pytest.raises(NotEmpty) as caught:
            await store.delete("/a/b", version=version)
    assert caught.value.path == "/a/b"
    await store.delete("/a/b/c", version=0)
    await store.delete("/a/b", version=0)


async def test_neighbour_with_a_longer_name_is_no_child(store: Store) -> None:
    await store.create("/ab", b"")
    await store.create("/a", b"")
    await store.create("/a-b", b"")
    assert (await store.children("/a")).names == ()
    await store.delete("/a", version=0)
    assert (await store.children("/")).names == ("a-b", "ab")


async def test_recreated_node_has_a_new_creation_id_and_version_zero(store: Store) -> None:
    old = (await store.create("/a", b"")).stat
    await store.set("/a", b"", version=0)
    await store.delete("/a", version=1)
    new = (await store.create("/a", b"")).stat
    assert new.version == 0
    assert new.creation_id > old.creation_id


async def test_get_and_children_of_nothing(store: Store) -> None:
    with pytest.raises(NoNode):
        await store.get("/a")
    with pytest.raises(NoNode):
        await store.children("/a")
    assert await store.exists("/a") is None


async def test_get_many_keeps_order_and_gaps(store: Store) -> None:
    await store.create("/d", b"")
    paths = [f"/d/{number}" for number in range(300)]
    for path in paths[::3]:
        await store.create(path, path.encode())
    nodes = await store.get_many([*paths, "/"], current=True)
    assert [node and node.data for node in nodes[:-1]] == [
        path.encode() if number % 3 == 0 else None for number, path in enumerate(paths)
    ]
    assert nodes[-1] is not None
    assert await store.get_many([]) == ()


async def test_children_of_a_deep_and_bushy_tree(store: Store) -> None:
    """Names that sort before, between and after the subtrees of their neighbours."""
    names = ["t", "t-1", "t.x", "t0", "t1", "ta", "u", "\x01", "~", "é", "\U0001f980"]
    await store.create("/top", b"")
    for name in names:
        await store.create(f"/top/{name}", b"")
        for part in range(3):
            await store.create(f"/top/{name}/{part}", b"")
            await store.create(f"/top/{name}/{part}/state", b"")
    assert (await store.children("/top")).names == tuple(sorted(names))
    assert (await store.children("/top/t")).names == ("0", "1", "2")
    assert (await store.children("/top/t/0/state")).names == ()


async def test_children_of_a_large_flat_folder(store: Store) -> None:
    from regnum_coordination.port import Create, Written  # noqa: PLC0415

    await store.create("/flat", b"")
    names = [f"n{number:04d}" for number in range(1500)]
    outcomes = await store.write_batch([(Create(f"/flat/{name}", b""),) for name in names])
    assert all(isinstance(outcome, Written) for outcome in outcomes)
    assert (await store.children("/flat")).names == tuple(names)


async def test_children_id_never_goes_back(store: Store) -> None:
    await store.create("/a", b"")
    before = (await store.children("/a")).children_id
    await store.create("/a/b", b"")
    between = (await store.children("/a")).children_id
    await store.delete("/a/b", version=0)
    assert before < between < (await store.children("/a")).children_id


async def test_the_root_exists_and_hides_what_drivers_keep(store: Store) -> None:
    assert (await store.children("/")).names == ()
    await store.create("/q", b"")
    await store.create("/q/x-", b"", sequential=True)
    assert (await store.children("/", current=True)).names == ("q",)
    assert await store.exists("/") is not None
    with pytest.raises(InvalidRequest):
        await store.set("/", b"", version=None)
    with pytest.raises(InvalidRequest):
        await store.delete("/", version=None)


@pytest.mark.parametrize(
    "path",
    ["", "a", "a/b", "//", "/a/", "/a//b", "/.", "/..", "/a/../b", "/a\0b", "/.sessions/x", "/.sequences", "/\ud800"],
)
async def test_paths_that_are_refused(store: Store, path: str) -> None:
    with pytest.raises(InvalidRequest):
        await store.create(path, b"")
    with pytest.raises(InvalidRequest):
        await store.get(path)
    with pytest.raises(InvalidRequest):
        await store.get_many([path])


@pytest.mark.parametrize(
    "name", ["ü mlaut", "日本", "a b", "\n", "%2f", "\\", "..x", "...", "\x7f", "'; --", "\ufffe", "x" * 1000]
)
async def test_paths_that_look_hostile_work(store: Store, name: str) -> None:
    await store.create("/d", b"")
    await store.create(f"/d/{name}", b"1")
    await store.set(f"/d/{name}", b"2", version=0)
    assert (await store.children("/d")).names == (name,)
    assert (await store.get(f"/d/{name}")).data == b"2"
    await store.delete(f"/d/{name}", version=1)
    assert (await store.children("/d")).names == ()


async def test_any_bytes_are_data(store: Store) -> None:
    data = bytes(range(256)) * 10
    await store.create("/a", data)
    assert (await store.get("/a")).data == data
    await store.set("/a", b"", version=0)
    assert (await store.get("/a")).data == b""


async def test_big_values(store: Store) -> None:
    await store.create("/a", b"x" * BIG)
    assert len((await store.get("/a")).data) == BIG
    with pytest.raises(InvalidRequest):
        await store.set("/a", b"x" * 2_000_000, version=0)
    assert (await store.exists("/a", current=True)) is not None
    assert (await store.get("/a")).stat.version == 0


async def test_a_hand_edit_is_read_like_any_node(world: World, store: Store) -> None:
    await world.overwrite("/hand", b"written")
    node = await store.get("/hand", current=True)
    assert (node.data, node.stat.version, node.stat.ephemeral_owner) == (b"written", 0, None)
    await store.set("/hand", b"again", version=0)


async def test_many_nodes_are_read_as_each_by_itself(world: World, store: Store) -> None:
    other = await world.open()
    await store.create("/m", b"")
    await other.create("/m/ephemeral", b"e", ephemeral=True)
    for name in ("a", "é", "\x01", "empty"):
        await store.create(f"/m/{name}", b"" if name == "empty" else name.encode())
    await store.set("/m/a", b"again", version=0)
    paths = ["/m/none", "/m", "/m/ephemeral", "/m/a", "/m/é", "/m/\x01", "/m/empty", "/m/a", *["/m/a"] * 600]
    many = await store.get_many(paths, current=True)
    assert many[0] is None
    for path, node in zip(paths[1:8], many[1:8], strict=True):
        single = await store.get(path)
        assert node is not None
        assert (node.data, node.stat.version) == (single.data, single.stat.version)
        assert node.stat.creation_id == single.stat.creation_id
        assert node.stat.modification_id == single.stat.modification_id
        assert node.stat.ephemeral_owner == single.stat.ephemeral_owner
    assert {node.data for node in many[7:] if node is not None} == {b"again"}
    assert len(many) == len(paths)
