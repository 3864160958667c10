"""A backup of one store restored into another: whole or used by nobody, and beside nobody."""

import asyncio
import stat
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path

import pytest
from regnum_client.commands.backups.backup import back_up
from regnum_client.commands.backups.files import BackupFile
from regnum_client.commands.backups.restore import Restored, Wish, restore_from, restore_in_place
from regnum_coordination.backup.restoring import Restore, RestoreRefusedError, look
from regnum_coordination.backup.taking import NoTreeError
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import ConnectionLoss, NoNode, SessionExpired
from regnum_coordination.port import Check, Create, Group, Outcome, Refused, TreePage
from regnum_election.candidacy.whole_tree import is_whole
from regnum_model import paths
from regnum_model.backup.lines import Entry, Header, LineWriter, MalformedBackupError
from regnum_model.backup.nodes import MARK, RestoredState, RestoreMark
from regnum_model.backup.plan import Write
from regnum_model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, LogId, TopicId
from regnum_model.nodes import LeaderAndIsr, Membership, ProducerIdBlockNode, TopicIdNode, TopicNode
from regnum_service.clock import SystemClock

TREE = {
    "/cluster/id": b"cluster 1",
    "/controller_epoch": b"7",
    "/brokers/ids": b"",
    "/election/ids": b"",
    "/config/cluster": b'{"version":1,"config":{"min.insync.replicas":"2"}}',
    "/delegation_tokens/secret": b"{}",
}


def _id(number: int) -> TopicId:
    return TopicId(f"{number:022d}")


def _tree(topics: int = 3) -> dict[str, bytes]:
    tree = dict(TREE)
    for number in range(topics):
        name = f"t{number}"
        node = TopicNode(topic_id=_id(number), partitions={0: (BrokerId(1), BrokerId(2))}, creating=frozenset({0}))
        tree[f"/brokers/topics/{name}"] = node.encode()
        tree[f"/brokers/topic_ids/{_id(number)}"] = TopicIdNode(topic=name).encode()
    return tree


async def _filled(tree: Mapping[str, bytes]) -> MemoryStore:
    store = MemoryStore(MemoryServer())
    for path, data in tree.items():
        await store.create(path, data, make_parents=True)
    return store


async def _everything(store: MemoryStore) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    async for page in store.read_tree("/"):
        found.update({path: node.data for path, node in page.nodes.items()})
    return found


def _nothing(_nodes: int) -> None:
    return


async def _take(store: MemoryStore, file: Path) -> Mapping[str, object]:
    return await back_up(store, "memory://x", str(file), BackupFile(file), _nothing)


async def _backup(tmp_path: Path, tree: Mapping[str, bytes] | None = None) -> Path:
    store = await _filled(_tree() if tree is None else tree)
    file = tmp_path / "backup"
    await _take(store, file)
    return file


class WallClockOfOldTimes(SystemClock):
    """A time of day before every backup: each is restored as one that is new, so that two come out the same."""

    def wall_ms(self) -> int:
        """The beginning of 1970."""
        return 1


async def _restore(store: MemoryStore, file: Path, **wish: object) -> Restored:
    asked = {"execute": True, "replace": False, "without_tokens": False, "more_brokers": frozenset(), **wish}
    wished = Wish(file=file, **asked)  # type: ignore[arg-type]
    return await restore_from(store, wished, _nothing, clock=WallClockOfOldTimes())


class CutStore(MemoryStore):
    """Ends after so many nodes were written, as a process that is killed."""

    writes_left = 10**9

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """As the store's, as far as it comes."""
        if len(groups) > self.writes_left:
            await super().write_batch(groups[: self.writes_left], fence=fence)
            self.writes_left = 0
            raise ConnectionLoss("killed")
        self.writes_left -= len(groups)
        return await super().write_batch(groups, fence=fence)


async def test_what_was_backed_up_comes_back_and_nothing_leads(tmp_path: Path) -> None:
    file = await _backup(tmp_path)
    store = MemoryStore(MemoryServer())
    done = await _restore(store, file)
    found = await _everything(store)
    assert found["/cluster/id"] == b"cluster 1"
    assert found["/config/cluster"] == TREE["/config/cluster"]
    assert found["/controller_epoch"] == b"10007"
    for number in range(3):
        assert TopicNode.decode(found[f"/brokers/topics/t{number}"]).topic_id == _id(number)
        assert RestoredState.decode(found[f"/brokers/topics/t{number}/0/leaderAndISR"]).topic_id == _id(number)
        assert found[f"/brokers/topic_ids/{_id(number)}"] == TopicIdNode(topic=f"t{number}").encode()
    mark = RestoreMark.decode(found[MARK])
    assert mark.whole
    assert mark.brokers == {1, 2}
    assert (done.row["restored"], done.row["topics"], done.objection) == (True, 3, None)


async def test_a_backup_is_for_its_owner_and_takes_no_other_files_place(tmp_path: Path) -> None:
    file = await _backup(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = file.read_bytes()
    with pytest.raises(FileExistsError):
        await _backup(tmp_path)
    assert file.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["backup"]


async def test_a_dry_run_changes_nothing_and_tells(tmp_path: Path) -> None:
    file = await _backup(tmp_path)
    store = MemoryStore(MemoryServer())
    told = await _restore(store, file, execute=False, more_brokers=frozenset({9}))
    assert await _everything(store) == {}
    assert (told.row["restored"], told.row["waits_for_brokers"], told.row["tokens"]) == (False, [1, 2, 9], 1)
    assert any("nothing was changed" in word for word in told.words)


async def test_a_tree_that_stands_is_not_touched(tmp_path: Path) -> None:
    file = await _backup(tmp_path)
    store = await _filled({"/cluster/id": b"cluster 2", "/brokers/topics/u": b"{}"})
    before = await _everything(store)
    told = await _restore(store, file, execute=False)
    assert told.objection is not None
    assert "cluster 2" in told.objection
    for replace in (False, True):
        with pytest.raises(RestoreRefusedError, match="cluster 2"):
            await _restore(store, file, replace=replace)
    assert await _everything(store) == before


@pytest.mark.parametrize("cluster", [b"cluster 1", b"what a process that found nothing made up"])
async def test_replace_takes_the_place_of_the_same_cluster_or_of_one_without_topics(
    tmp_path: Path, cluster: bytes
) -> None:
    file = await _backup(tmp_path)
    extra = {"/brokers/topics/gone": b"{}"} if cluster == b"cluster 1" else {"/brokers/topics": b""}
    store = await _filled({"/cluster/id": cluster, "/controller_epoch": b"900", "/admin/draining/3": b"", **extra})
    await _restore(store, file, replace=True)
    empty = MemoryStore(MemoryServer())
    await _restore(empty, file)
    found, expected = await _everything(store), await _everything(empty)
    for of_this_restore in (MARK, paths.TREE_ID):
        assert found.pop(of_this_restore) != expected.pop(of_this_restore)
    assert found == expected


@pytest.mark.parametrize("path", ["/brokers/ids/1", "/election/ids/2", "/controller", "/quota/active"])
async def test_nothing_is_restored_while_a_process_runs(tmp_path: Path, path: str) -> None:
    file = await _backup(tmp_path)
    server = MemoryServer()
    store, process = MemoryStore(server), MemoryStore(server)
    await process.create(path.rpartition("/")[0] or "/x", b"", make_parents=True)
    await process.create(path, b"{}", ephemeral=True)
    before = await _everything(store)
    for replace in (False, True):
        with pytest.raises(RestoreRefusedError, match="a process runs"):
            await _restore(store, file, replace=replace)
    assert await _everything(store) == before


@pytest.mark.parametrize("kept", range(26))
async def test_a_restore_that_was_killed_is_used_by_nobody_and_simply_run_again(tmp_path: Path, kept: int) -> None:
    file = await _backup(tmp_path)
    server = MemoryServer()
    store = CutStore(server)
    store.writes_left = kept
    with pytest.raises((ConnectionLoss, SessionExpired)):
        await _restore(store, file)
    again = MemoryStore(server)
    found = await _everything(again)
    if kept:
        assert not is_whole(await again.get(MARK))
        with pytest.raises(NoTreeError, match="not whole"):
            await _take(again, tmp_path / "other")
    assert "/cluster/id" not in found
    done = await _restore(again, file)
    assert done.row["goes_on_from_one_cut_off"] is bool(kept)
    assert is_whole(await again.get(MARK))
    empty = MemoryStore(MemoryServer())
    await _restore(empty, file)
    expected, found = await _everything(empty), await _everything(again)
    for of_this_restore in (MARK, paths.TREE_ID):
        assert found.pop(of_this_restore) != expected.pop(of_this_restore)
    assert found == expected


@pytest.mark.parametrize("kept", range(1, 42))
async def test_a_restore_over_a_tree_that_was_killed_is_used_by_nobody_and_simply_run_again(
    tmp_path: Path, kept: int
) -> None:
    """As above, with a tree of the same cluster that is deleted first."""
    file = await _backup(tmp_path)
    server = MemoryServer()
    store = CutStore(server)
    for path, data in _tree(topics=1).items():
        await store.create(path, data, make_parents=True)
    store.writes_left = kept
    with pytest.raises((ConnectionLoss, SessionExpired)):
        await _restore(store, file, replace=True)
    again = MemoryStore(server)
    # Brokers wait for the cluster's id, so that goes right after the mark was written.
    assert ("/cluster/id" in await _everything(again)) is (kept == 1)
    assert not is_whole(await again.get(MARK))
    done = await _restore(again, file)
    assert done.row["goes_on_from_one_cut_off"] is True
    assert is_whole(await again.get(MARK))
    empty = MemoryStore(MemoryServer())
    await _restore(empty, file)
    expected, found = await _everything(empty), await _everything(again)
    for of_this_restore in (MARK, paths.TREE_ID):
        assert found.pop(of_this_restore) != expected.pop(of_this_restore)
    assert found == expected


@pytest.mark.parametrize("cut_off_after", [1, 2, 10, None])
async def test_numbers_go_on_above_those_of_the_tree_whose_place_it_takes(
    tmp_path: Path, cut_off_after: int | None
) -> None:
    """The same backup again, or an earlier one, after the restored cluster has lived on: clients know its reigns."""
    file = await _backup(tmp_path)
    server = MemoryServer()
    store = CutStore(server)
    await _restore(store, file)
    lived = {
        "/controller_epoch": b"10444",
        "/latest_producer_id_block": ProducerIdBlockNode(first=2**60, count=1000).encode(),
    }
    for path, data in lived.items():
        await store.set(path, data, version=0)
    if cut_off_after is not None:
        store.writes_left = cut_off_after
        with pytest.raises((ConnectionLoss, SessionExpired)):
            await _restore(store, file, replace=True)
    again = MemoryStore(server)
    done = await _restore(again, file, replace=True)
    assert done.row["controller_epoch"] == 10444
    assert (await again.get("/controller_epoch")).data == b"10444"
    block = ProducerIdBlockNode.decode((await again.get("/latest_producer_id_block")).data)
    assert block.first == 2**60 + 1000


async def test_two_restores_at_once_do_not_mix(tmp_path: Path) -> None:
    first, second = await _backup(tmp_path), tmp_path / "second"
    await _take(await _filled(_tree(40)), second)
    server = MemoryServer()
    ends = await asyncio.gather(
        _restore(MemoryStore(server), first), _restore(MemoryStore(server), second), return_exceptions=True
    )
    refused = [end for end in ends if isinstance(end, RestoreRefusedError)]
    done = [end for end in ends if isinstance(end, Restored)]
    assert len(refused) + len(done) == 2
    assert len(done) <= 1
    store = MemoryStore(server)
    if done:
        assert len((await store.children(paths.TOPICS)).names) == done[0].row["topics"]
    else:
        assert not is_whole(await store.get(MARK))


class InterruptedStore(MemoryStore):
    """Somebody wins an election after so many batches."""

    server: MemoryServer
    batches_left = 0

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """As the store's, after what the other one does."""
        self.batches_left -= 1
        if self.batches_left == 0:
            other = MemoryStore(self.server)
            stat = await other.exists("/controller_epoch")
            if stat is None:
                await other.create("/controller_epoch", b"1")
            else:
                await other.set("/controller_epoch", b"99999", version=stat.version)
            await other.create("/controller", b"{}", ephemeral=True)
        return await super().write_batch(groups, fence=fence)


@pytest.mark.parametrize("batches", [1, 2, 3, 4])
async def test_a_controller_that_appears_meanwhile_ends_the_restore(tmp_path: Path, batches: int) -> None:
    file = await _backup(tmp_path)
    server = MemoryServer()
    store = InterruptedStore(server)
    store.server = server
    store.batches_left = batches
    with pytest.raises(RestoreRefusedError):
        await _restore(store, file)
    found = await _everything(MemoryStore(server))
    assert "/cluster/id" not in found


async def test_a_process_that_came_after_the_look_is_seen_before_anything_of_its_tree_goes() -> None:
    """What it wrote has the versions that a restore writes too: its fence would hold over the restored tree."""
    server = MemoryServer()
    store, process = MemoryStore(server), MemoryStore(server)
    found = await look(store)
    await process.create("/election/ids/1", b"{}", ephemeral=True, make_parents=True)
    await process.create("/controller_epoch", b"1")
    await process.create("/controller", b"{}", ephemeral=True)
    before = await _everything(store)
    mark = RestoreMark(whole=False, run="r", backup="b", taken_ms=0, since_ms=0)
    restore = Restore(store, SystemClock(), mark=mark, progress=_nothing)
    with pytest.raises(RestoreRefusedError, match="a process was started"):
        await restore.begin(found, Write("/controller_epoch", b"10001"))
    left = await _everything(store)
    assert not RestoreMark.decode(left.pop(MARK)).whole
    assert left == before


class ArrivingStore(MemoryStore):
    """A process registers when the marked tree is read for its deletion."""

    server: MemoryServer

    async def read_tree(self, path: str, *, current: bool = True) -> AsyncGenerator[TreePage, None]:
        """As the store's, after what the other one does."""
        other = MemoryStore(self.server)
        if await other.exists("/brokers/ids/7") is None:
            await other.create("/brokers/ids/7", b"{}", ephemeral=True, make_parents=True)
        async for page in super().read_tree(path, current=current):
            yield page


async def test_no_restore_deletes_the_registration_of_a_process(tmp_path: Path) -> None:
    file = await _backup(tmp_path)
    server = MemoryServer()
    process = MemoryStore(server)
    for path in ("/cluster/id", "/brokers/ids"):
        await process.create(path, b"cluster 1", make_parents=True)
    store = ArrivingStore(server)
    store.server = server
    with pytest.raises(RestoreRefusedError, match="/brokers/ids/7 stands"):
        await _restore(store, file, replace=True)
    assert await process.exists("/brokers/ids/7") is not None


async def test_a_topic_that_the_store_does_not_take_ends_the_restore(tmp_path: Path) -> None:
    """Its guard without it would be an order to delete what brokers have of it."""
    file = await _backup(tmp_path)
    server = MemoryServer()
    store = ChoosyStore(server)
    with pytest.raises(RestoreRefusedError, match="/brokers/topics/t1"):
        await _restore(store, file)
    found = await _everything(MemoryStore(server))
    assert "/cluster/id" not in found
    assert not is_whole(await MemoryStore(server).get(MARK))


class ChoosyStore(MemoryStore):
    """Takes everything but one topic."""

    async def write_batch(self, groups: Sequence[Group], *, fence: Check | None = None) -> tuple[Outcome, ...]:
        """As the store's; the topic is refused."""
        outcomes: list[Outcome] = []
        for group in groups:
            if group[0].path == "/brokers/topics/t1":
                outcomes.append(Refused(NoNode("/brokers/topics/t1")))
            else:
                outcomes += await super().write_batch([group], fence=fence)
        return tuple(outcomes)


async def test_a_damaged_file_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    file = await _backup(tmp_path)
    file.write_bytes(file.read_bytes()[:-40])
    store = MemoryStore(MemoryServer())
    with pytest.raises(MalformedBackupError):
        await _restore(store, file)
    assert await _everything(store) == {}


@pytest.mark.parametrize(
    "path", ["/config/../brokers", "//config/x", "/config/x/", "/config/\ud800", "/.sessions/1", "x"]
)
async def test_a_path_that_no_store_has_is_refused_before_anything_is_written(tmp_path: Path, path: str) -> None:
    file = tmp_path / "backup"
    header = Header(cluster_id="c", store="etcd", taken_ms=1, one_moment=True, revision=1, regnum="0.1.0")
    lines = LineWriter()
    nodes = (Entry(path=one, data=b"x", version=0) for one in ("/config", path))
    file.write_bytes(b"".join([lines.header(header), *map(lines.entry, nodes), lines.end()]))
    store = MemoryStore(MemoryServer())
    with pytest.raises(MalformedBackupError, match="line 3"):
        await _restore(store, file)
    assert await _everything(store) == {}


async def test_an_empty_store_is_not_backed_up(tmp_path: Path) -> None:
    with pytest.raises(NoTreeError, match="no tree"):
        await _take(MemoryStore(MemoryServer()), tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


async def test_nobody_reigns_by_a_mark_that_cannot_be_read() -> None:
    store = MemoryStore(MemoryServer())
    await store.multi([Create(MARK, b"?")])
    assert not is_whole(await store.get(MARK))
    assert is_whole(None)


async def test_a_backup_says_how_many_brokers_it_knows_the_logs_of(tmp_path: Path) -> None:
    """Without one, each restored partition is for a person: it is said while brokers can still be started."""
    store = await _filled(_tree())
    assert (await _take(store, tmp_path / "alone"))["brokers"] == 0
    await store.create("/brokers/ids/1", b"{}", ephemeral=True)
    assert (await _take(store, tmp_path / "with"))["brokers"] == 1


async def test_a_tree_is_restored_in_place(tmp_path: Path) -> None:
    """What a store holds that was put back by other means: first told, then done, with the tree kept in a file."""
    lives = {f"/brokers/lives/{id}": b"{}" for id in (1, 2, 7)}
    signs = {"/cluster/went_back": b"{}", "/cluster/tree_id": b"former"}
    store = await _filled({**_tree(), "/brokers/lives": b"", **lives, **signs})
    before = await _everything(store)
    file = tmp_path / "before"
    asked = {"replace": False, "without_tokens": False, "more_brokers": frozenset({9})}
    told = await restore_in_place(store, "memory://x", Wish(file=file, execute=False, **asked), _nothing)  # type: ignore[arg-type]
    assert told.row["waits_for_brokers"] == [1, 2, 7, 9]
    assert await _everything(store) == before
    assert not file.exists()
    done = await restore_in_place(store, "memory://x", Wish(file=file, execute=True, **asked), _nothing)  # type: ignore[arg-type]
    assert (done.row["restored"], done.row["topics"]) == (True, 3)
    found = await _everything(store)
    assert not {*lives, "/cluster/went_back"} & found.keys()
    mark = RestoreMark.decode(found[MARK])
    assert found["/cluster/tree_id"] == mark.run.encode()
    assert mark.brokers == {1, 2, 7, 9}
    assert RestoredState.decode(found["/brokers/topics/t0/0/leaderAndISR"])
    # What a restore that is cut off goes on with.
    again = MemoryStore(MemoryServer())
    await _restore(again, file)
    assert RestoredState.decode((await _everything(again))["/brokers/topics/t0/0/leaderAndISR"])


@pytest.mark.parametrize("kept", [1, 12, 30])
async def test_a_restore_in_place_that_was_cut_off_goes_on_with_all_brokers_that_had_a_life(
    tmp_path: Path, kept: int
) -> None:
    """It deletes the lives with the tree: the file alone knows of a broker that is assigned nothing at present."""
    server = MemoryServer()
    store = CutStore(server)
    for path, data in {**_tree(), "/brokers/lives/2": b"{}", "/brokers/lives/7": b"{}"}.items():
        await store.create(path, data, make_parents=True)
    store.writes_left = kept
    wish = Wish(file=tmp_path / "before", execute=True, replace=False, without_tokens=False, more_brokers=frozenset())
    with pytest.raises((ConnectionLoss, SessionExpired)):
        await restore_in_place(store, "memory://x", wish, _nothing)
    again = MemoryStore(server)
    done = await _restore(again, wish.file, replace=True)
    assert (done.row["goes_on_from_one_cut_off"], done.row["waits_for_brokers"]) == (True, [1, 2, 7])
    assert RestoreMark.decode((await _everything(again))[MARK]).brokers == {1, 2, 7}


async def test_nothing_is_restored_in_place_while_a_process_runs(tmp_path: Path) -> None:
    store = await _filled(_tree())
    await store.create("/brokers/ids/1", b"{}", ephemeral=True, make_parents=True)
    before = await _everything(store)
    wish = Wish(file=tmp_path / "before", execute=True, replace=False, without_tokens=False, more_brokers=frozenset())
    with pytest.raises(RestoreRefusedError, match="a process runs"):
        await restore_in_place(store, "memory://x", wish, _nothing)
    assert await _everything(store) == before
    assert not wish.file.exists()


async def test_logs_that_states_record_are_known_without_any_broker(tmp_path: Path) -> None:
    """A tree that is taken when every process has stopped: log ids in ISR and ELR say which logs are unchanged."""
    state = LeaderAndIsr(
        topic_id=_id(0),
        leader=BrokerId(1),
        leader_epoch=LeaderEpoch(4),
        isr=(BrokerId(1),),
        elr=(BrokerId(2),),
        members={BrokerId(id): Membership(broker_epoch=BrokerEpoch(id), log_id=LogId(f"log {id}")) for id in (1, 2)},
        controller_epoch=ControllerEpoch(1),
    )
    tree = {path: data for path, data in _tree().items() if not path.startswith("/brokers/ids/")}
    file = await _backup(tmp_path, {**tree, paths.leader_and_isr("t0", 0): state.encode()})
    store = MemoryStore(MemoryServer())
    await _restore(store, file)
    mark = RestoreMark.decode((await _everything(store))[MARK])
    assert mark.logs == {1: {"log 1"}, 2: {"log 2"}}
