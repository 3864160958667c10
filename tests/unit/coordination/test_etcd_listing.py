"""Children and trees out of etcd's keys: the right ones, and at a cost that grows as the keys do."""

from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_coordination.drivers.etcd.keys import Keys, child_name
from regnum_coordination.drivers.etcd.pages import FIRST_KEYS, MAX_KEYS, PAGE_BYTES
from regnum_coordination.drivers.etcd.reading import READ_COST, SHORT_PAGE, EtcdReader, listing_page
from regnum_coordination.drivers.etcd.rpc import EtcdRpc
from regnum_coordination.drivers.etcd.trees import EtcdTrees
from regnum_coordination.errors import ConnectionLoss
from regnum_testing.counting_etcd import CountingEtcd

NAMES = st.text(alphabet=st.sampled_from("ab-./0~\x01é"), min_size=1, max_size=3).filter(
    lambda name: "/" not in name and name not in {".", ".."}
)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


def _rpc(etcd: CountingEtcd) -> EtcdRpc:
    return EtcdRpc([etcd.channel], timeout_s=5.0)


async def _names(etcd: CountingEtcd, path: str) -> tuple[str, ...]:
    return (await EtcdReader(_rpc(etcd), Keys(""), max_txn_ops=128).children(path)).names


def _folder(topics: int, partitions: int) -> dict[bytes, bytes]:
    values = {b"/topics": b""}
    for topic in range(topics):
        values[f"/topics/t-{topic:05d}".encode()] = b"x"
        for partition in range(partitions):
            values[f"/topics/t-{topic:05d}/{partition}".encode()] = b""
            values[f"/topics/t-{topic:05d}/{partition}/leaderAndISR".encode()] = b"y" * 250
    return values


@pytest.mark.parametrize(
    ("topics", "partitions"), [(1_000, 4), (2_000, 4), (4_000, 4), (100, 100), (100, 400), (10, 1_000), (5, 8_000)]
)
async def test_listing_a_folder_costs_little_more_than_its_keys(topics: int, partitions: int) -> None:
    """One call for each child would count topics times keys: 4,000 times 36,000."""
    etcd = CountingEtcd(_folder(topics, partitions))
    keys = topics * (1 + 2 * partitions)
    assert len(await _names(etcd, "/topics")) == topics
    assert etcd.ranges <= 3 + keys // 4_000
    assert etcd.counted + READ_COST * etcd.answered <= 2 * READ_COST * keys


async def test_a_folder_of_few_large_subtrees_is_not_read_whole() -> None:
    etcd = CountingEtcd(_folder(4, 10_000))
    assert await _names(etcd, "/topics") == tuple(f"t-{topic:05d}" for topic in range(4))
    assert etcd.answered < 4 * 20_001 / 4
    assert etcd.ranges <= 8


def test_a_page_is_short_where_that_passes_more_for_its_cost() -> None:
    assert listing_page(200_000, 20_000) == SHORT_PAGE
    assert listing_page(200_000, 2_001) == MAX_KEYS
    assert listing_page(30_000, 9) == MAX_KEYS


@given(st.sets(PATHS, max_size=30))
async def test_exactly_the_children_are_listed(paths: set[str]) -> None:
    beside = dict.fromkeys((b"/top", b"/top-x", b"/top0"), b"")
    etcd = CountingEtcd({f"/top/{path}".encode(): b"" for path in paths} | beside)
    assert set(await _names(etcd, "/top")) == {path for path in paths if "/" not in path}


@pytest.mark.parametrize("partitions", [1, 30])
async def test_a_tree_is_read_in_few_calls_whatever_it_is_made_of(partitions: int) -> None:
    values = _folder(30_000 // (1 + 2 * partitions), partitions)
    etcd = CountingEtcd(values)
    seen: dict[bytes, bytes] = {}
    async with aclosing(EtcdTrees(_rpc(etcd), Keys("")).read("/topics")) as pages:
        async for page in pages:
            assert page.revision == 7
            assert len(page.nodes) <= 1_000
            assert not seen.keys() & {path.encode() for path in page.nodes}
            seen.update((path.encode(), node.data) for path, node in page.nodes.items())
    assert seen == values
    assert etcd.ranges <= 6
    assert etcd.answered == len(values)


async def test_no_page_is_large_before_the_size_of_one_is_known() -> None:
    etcd = CountingEtcd({b"/topics": b""} | {f"/topics/{number:05d}".encode(): b"z" * 8_192 for number in range(4_000)})
    async with aclosing(EtcdTrees(_rpc(etcd), Keys("")).read("/topics")) as pages:
        assert sum([len(page.nodes) async for page in pages]) == 4_001
    assert etcd.limits[:2] == [FIRST_KEYS, FIRST_KEYS]
    assert all(400 < limit <= PAGE_BYTES // 8_192 for limit in etcd.limits[2:])


async def test_pages_that_are_too_large_are_asked_for_again_with_fewer_keys() -> None:
    """Small values say that many fit; large ones follow."""
    values = {f"/topics/a{number:05d}".encode(): b"" for number in range(3_000)}
    values |= {f"/topics/b{number:05d}".encode(): b"z" * 20_000 for number in range(500)}
    etcd = CountingEtcd(values, largest_answer=2_000_000)
    nodes: dict[str, bytes] = {}
    async with aclosing(EtcdTrees(_rpc(etcd), Keys("")).read("/topics")) as pages:
        async for page in pages:
            nodes.update((path, node.data) for path, node in page.nodes.items())
    assert nodes == {key.decode(): value for key, value in values.items()}


async def test_a_page_that_never_comes_is_a_loss_of_the_connection() -> None:
    etcd = CountingEtcd({f"/topics/{number}".encode(): b"z" * 20_000 for number in range(100)}, largest_answer=1_000)
    with pytest.raises(ConnectionLoss):
        await anext(EtcdTrees(_rpc(etcd), Keys("")).read("/"))
    assert etcd.ranges <= 4


async def test_keys_that_are_no_paths_are_in_no_tree() -> None:
    values = {b"/a": b"", b"/a/b": b"", b"/a//x": b"", b"/a/.": b"", b"/a/\xff": b"", b"/.sessions/1": b""}
    async with aclosing(EtcdTrees(_rpc(CountingEtcd(values)), Keys("")).read("/")) as pages:
        assert [path async for page in pages for path in page.nodes] == ["/a", "/a/b"]
    assert child_name(b"/a//x", b"/a/") is None
