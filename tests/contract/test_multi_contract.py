"""Multis and batches: atomic, conditional, one outcome for each group."""

import pytest
from regnum_coordination.errors import (
    BadVersion,
    InvalidRequest,
    NodeExists,
    NodeFailure,
    NoNode,
    NotEmpty,
    SessionExpired,
)
from regnum_coordination.port import (
    Absent,
    Check,
    Create,
    Delete,
    Expired,
    Fenced,
    Group,
    Operation,
    Refused,
    Set,
    Store,
    Written,
)
from regnum_testing.coordination_worlds import World


async def _tree(store: Store) -> dict[str, tuple[bytes, int]]:
    found: dict[str, tuple[bytes, int]] = {}
    folders = ["/"]
    while folders:
        folder = folders.pop()
        for name in (await store.children(folder, current=True)).names:
            path = f"{folder.rstrip('/')}/{name}"
            node = await store.get(path, current=True)
            found[path] = (node.data, node.stat.version)
            folders.append(path)
    return found


@pytest.fixture
async def filled(store: Store) -> Store:
    await store.create("/a", b"a")
    await store.create("/b", b"b")
    await store.create("/b/child", b"")
    return store


async def test_a_multi_does_all_its_operations(filled: Store) -> None:
    results = await filled.multi(
        [Check("/b", 0), Create("/c", b"c"), Set("/a", b"A", 0), Delete("/b/child", 0), Check("/b/none", None)][:4]
    )
    assert [result.path for result in results] == ["/b", "/c", "/a", "/b/child"]
    assert [result.stat and result.stat.version for result in results] == [None, 0, 1, None]
    assert await _tree(filled) == {"/a": (b"A", 1), "/b": (b"b", 0), "/c": (b"c", 0)}


async def test_the_stats_of_a_multi_are_what_is_read(filled: Store) -> None:
    created, changed = await filled.multi([Create("/c", b"", ephemeral=True), Set("/a", b"A", None)])
    for result in (created, changed):
        stat = await filled.exists(result.path, current=True)
        assert result.stat is not None
        assert stat is not None
        assert (stat.creation_id, stat.modification_id, stat.version, stat.ephemeral_owner) == (
            result.stat.creation_id,
            result.stat.modification_id,
            result.stat.version,
            result.stat.ephemeral_owner,
        )


@pytest.mark.parametrize("version", [-1, -2, 2**31, 2**63])
async def test_a_version_that_no_node_can_have_fits_none(filled: Store, version: int) -> None:
    """Neither any version, as ZooKeeper's -1, nor the absence of a node, as etcd's 0."""
    for impossible in (Check("/none", version), Set("/none", b"", version), Delete("/none", version)):
        with pytest.raises(NoNode):
            await filled.multi([impossible, Create("/made", b"")])
    for impossible in (Check("/a", version), Set("/a", b"", version), Delete("/a", version)):
        with pytest.raises(BadVersion):
            await filled.multi([impossible, Create("/made", b"")])
    outcomes = await filled.write_batch([(Set("/a", b"A", 0),), (Set("/none", b"", version),)])
    assert isinstance(outcomes[0], Written)
    assert isinstance(outcomes[1], Refused)
    assert isinstance(outcomes[1].error, NoNode)
    assert await filled.exists("/made", current=True) is None


async def test_long_paths_are_written_or_refused_for_good(filled: Store) -> None:
    """A store that takes no such request must say so: what counts as unknown would be repeated for ever."""
    creations = tuple(Create(f"/{'p' * 9_900}{number}", b"") for number in range(100))
    try:
        await filled.multi(creations)
    except InvalidRequest:
        with pytest.raises(InvalidRequest):
            await filled.write_batch([creations])
        with pytest.raises(InvalidRequest):
            await filled.write_batch([(Check("/a"), Create(f"/{'p' * 900_000}", b""))])
    assert (await filled.get("/a", current=True)).data == b"a"


@pytest.mark.parametrize(
    ("failing", "error"),
    [
        (Check("/none"), NoNode),
        (Check("/none", 0), NoNode),
        (Check("/b", 7), BadVersion),
        (Create("/b", b""), NodeExists),
        (Absent("/b"), NodeExists),
        (Absent("/b/child"), NodeExists),
        (Create("/none/x", b""), NoNode),
        (Set("/none", b"", None), NoNode),
        (Set("/b", b"", 3), BadVersion),
        (Delete("/none", None), NoNode),
        (Delete("/b/child", 9), BadVersion),
        (Delete("/b", 0), NotEmpty),
    ],
)
@pytest.mark.parametrize("first", [True, False])
async def test_one_failing_operation_undoes_a_multi(
    filled: Store, failing: Operation, error: type[NodeFailure], *, first: bool
) -> None:
    before = await _tree(filled)
    good: list[Operation] = [Create("/new", b""), Set("/a", b"A", 0)]
    with pytest.raises(error) as caught:
        await filled.multi([failing, *good] if first else [*good, failing])
    assert caught.value.path == failing.path
    assert await _tree(filled) == before


async def test_the_first_failing_operation_names_the_error(filled: Store) -> None:
    with pytest.raises(BadVersion) as caught:
        await filled.multi([Check("/a", 0), Set("/b", b"", 5), Create("/a", b""), Check("/none")])
    assert caught.value.path == "/b"


async def test_a_multi_sees_its_own_earlier_operations(store: Store) -> None:
    await store.multi([Create("/t", b""), Create("/t/0", b""), Create("/t/0/state", b"")])
    assert (await store.children("/t")).names == ("0",)
    await store.multi([Delete("/t/0/state", 0), Delete("/t/0", 0), Delete("/t", 0)])
    assert await _tree(store) == {}


async def test_a_folder_with_one_child_too_many_is_not_deleted(store: Store) -> None:
    await store.multi([Create("/t", b""), Create("/t/b", b""), Create("/t/d", b"")])
    for extra in ("/t/a", "/t/c", "/t/e"):
        await store.create(extra, b"")
        with pytest.raises(NotEmpty) as caught:
            await store.multi([Delete("/t/b", 0), Delete("/t/d", 0), Delete("/t", 0)])
        assert caught.value.path == "/t"
        await store.delete(extra, version=0)
    await store.multi([Delete("/t/d", 0), Delete("/t/b", 0), Delete("/t", 0)])


@pytest.mark.parametrize(
    ("operations", "error"),
    [
        ([Delete("/a", 0), Create("/a/x", b"")], NoNode),
        ([Create("/a/x", b""), Delete("/a", 0)], NotEmpty),
        ([Create("/e", b"", ephemeral=True), Create("/e/x", b"")], NoNode),
    ],
)
async def test_what_earlier_operations_make_impossible(
    filled: Store, operations: list[Operation], error: type[NodeFailure]
) -> None:
    before = await _tree(filled)
    with pytest.raises(error) as caught:
        await filled.multi(operations)
    assert caught.value.path == operations[1].path
    assert await _tree(filled) == before


@pytest.mark.parametrize(
    "operations",
    [
        [Set("/a", b"1", None), Set("/a", b"2", None)],
        [Delete("/a", None), Create("/a", b"")],
        [Create("/x", b""), Delete("/x", None)],
        [Set("/a", b"1", 0), Check("/a", 1)],
        [Absent("/x"), Create("/x", b"")],
        [Create("/x", b""), Absent("/x")],
        [Absent("/x"), Set("/x", b"", 0)],
        [Delete("/a", 0), Absent("/a")],
    ],
)
async def test_a_path_written_twice_is_refused(filled: Store, operations: list[Operation]) -> None:
    """Safety rule S5; a check after the write would mean different things on different stores."""
    before = await _tree(filled)
    with pytest.raises(InvalidRequest):
        await filled.multi(operations)
    with pytest.raises(InvalidRequest):
        await filled.write_batch([(Create("/other", b""),), tuple(operations)])
    assert await _tree(filled) == before


async def test_checks_may_repeat_and_may_come_before_the_write(filled: Store) -> None:
    await filled.multi([Check("/b"), Check("/b", 0), Check("/a", 0), Set("/a", b"A", 0)])
    assert (await filled.get("/a")).data == b"A"


async def test_an_empty_multi(store: Store) -> None:
    assert await store.multi([]) == ()
    assert await store.write_batch([]) == ()


async def test_a_multi_of_checks_only(filled: Store) -> None:
    results = await filled.multi([Check("/a", 0), Check("/", None)])
    assert [result.stat for result in results] == [None, None]


async def test_each_group_of_a_batch_has_its_own_outcome(filled: Store) -> None:
    outcomes = await filled.write_batch(
        [
            (Create("/c", b""),),
            (Set("/a", b"A", 4),),
            (Check("/b", 0), Set("/b/child", b"x", 0)),
            (Check("/none"), Create("/d", b"")),
            (Create("/b/other", b"", ephemeral=True),),
        ]
    )
    assert [type(outcome) for outcome in outcomes] == [Written, Refused, Written, Refused, Written]
    refused = [outcome.error for outcome in outcomes if isinstance(outcome, Refused)]
    assert [type(error) for error in refused] == [BadVersion, NoNode]
    assert [error.path for error in refused if isinstance(error, NodeFailure)] == ["/a", "/none"]
    assert await _tree(filled) == {
        "/a": (b"a", 0),
        "/b": (b"b", 0),
        "/b/child": (b"x", 1),
        "/b/other": (b"", 0),
        "/c": (b"", 0),
    }


async def test_one_conflict_among_many(store: Store) -> None:
    """More groups than one transaction takes, written and set again; a single one is refused each time."""
    await store.create("/many", b"")
    await store.create("/many/0200", b"in the way")
    paths = [f"/many/{number:04d}" for number in range(700)]
    created = await store.write_batch([(Create(path, b"one"),) for path in paths])
    assert [index for index, outcome in enumerate(created) if not isinstance(outcome, Written)] == [200]
    await store.set("/many/0555", b"moved on", version=0)
    changed = await store.write_batch([(Check("/many", 0), Set(path, b"two", 0)) for path in paths])
    (conflict,) = [outcome for outcome in changed if not isinstance(outcome, Written)]
    assert isinstance(conflict, Refused)
    assert isinstance(conflict.error, BadVersion)
    assert conflict.error.path == "/many/0555"
    assert conflict.error.found in {None, 1}
    nodes = await store.get_many(paths, current=True)
    assert {node.data for node in nodes if node} == {b"two", b"moved on"}
    written = [outcome.results[1].stat for outcome in changed if isinstance(outcome, Written)]
    assert {stat.version for stat in written if stat} == {1}


async def test_the_fence_holds_for_every_group(filled: Store) -> None:
    groups: list[Group] = [(Create(f"/n{number}", b""),) for number in range(300)]
    assert set(map(type, await filled.write_batch(groups, fence=Check("/a", 1)))) == {Fenced}
    assert set(map(type, await filled.write_batch(groups, fence=Check("/none", 0)))) == {Fenced}
    assert await filled.exists("/n0", current=True) is None
    assert set(map(type, await filled.write_batch(groups, fence=Check("/a", 0)))) == {Written}


async def test_a_group_must_not_write_the_fence(filled: Store) -> None:
    with pytest.raises(InvalidRequest):
        await filled.write_batch([(Create("/c", b""),), (Set("/a", b"", 0),)], fence=Check("/a", 0))
    assert await filled.exists("/c", current=True) is None


async def test_groups_that_write_the_same_path_go_one_after_the_other(filled: Store) -> None:
    outcomes = await filled.write_batch(
        [(Set("/a", b"1", 0),), (Set("/a", b"2", 1),), (Set("/a", b"3", 1),), (Set("/b", b"x", 0),)]
    )
    assert [type(outcome) for outcome in outcomes] == [Written, Written, Refused, Written]
    assert (await filled.get("/a")).data == b"2"


async def test_a_group_that_relies_on_an_earlier_group_sees_it(store: Store) -> None:
    outcomes = await store.write_batch(
        [
            (Create("/t", b""),),
            (Create("/t/0", b""),),
            (Check("/t/0", 0), Create("/seen", b"")),
            (Delete("/t/0", 0),),
            (Delete("/t", 0),),
        ]
    )
    assert [type(outcome) for outcome in outcomes] == [Written] * 5
    assert await _tree(store) == {"/seen": (b"", 0)}


async def test_two_groups_never_both_rely_on_what_the_other_takes_away(filled: Store) -> None:
    """Write skew: each deletes what the other checks; only one may happen."""
    await filled.delete("/b/child", version=0)
    outcomes = await filled.write_batch([(Check("/a", 0), Delete("/b", 0)), (Check("/b", 0), Delete("/a", 0))])
    assert [type(outcome) for outcome in outcomes] == [Written, Refused]


async def test_a_batch_of_a_session_that_is_over(world: World, filled: Store) -> None:
    other = await world.open()
    await world.expire(filled)
    outcomes = await filled.write_batch([(Create(f"/n{number}", b""),) for number in range(200)])
    assert set(map(type, outcomes)) == {Expired}
    assert await other.exists("/n0", current=True) is None
    with pytest.raises(SessionExpired):
        await filled.multi([Check("/a", 0)])


async def test_a_large_multi_is_atomic(store: Store) -> None:
    await store.create("/m", b"")
    operations = [Create(f"/m/{number}", b"") for number in range(30)]
    await store.create("/m/29", b"")
    with pytest.raises(NodeExists) as caught:
        await store.multi(operations)
    assert caught.value.path == "/m/29"
    assert (await store.children("/m", current=True)).names == ("29",)
