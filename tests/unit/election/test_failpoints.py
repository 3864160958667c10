"""A failpoint fires at the step that it names and at no other; without one, nothing is wrapped."""

import json
from pathlib import Path

import pytest
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.errors import NodeExists
from regnum_coordination.port import Absent, Check, Create, Refused, Set, Written
from regnum_election.failpoints.channel import FailpointChannel
from regnum_election.failpoints.store import FailpointStore
from regnum_election.settings import ElectionSettings
from regnum_model.ids import BrokerId
from regnum_service.errors import RegnumError
from regnum_service.failpoints.failpoint import Action, FailpointError, Moment, Order, Write, parse
from regnum_service.failpoints.trigger import FailpointTrigger
from regnum_service.settings import load

SETTINGS = (
    "--election-id=1",
    "--coordination=etcd://127.0.0.1:2379",
    "--client-listen=127.0.0.1:1",
    "--internal-listen=127.0.0.1:2",
    "--lifeline-listen=127.0.0.1:3",
)


class EndedError(Exception):
    """Stands for SIGKILL: what comes after it in the code does not happen."""


class Scene:
    """A store on which a process writes, and what the failpoint did to that process."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "failpoint"
        self.acts: list[Action] = []
        self.below = MemoryStore(MemoryServer())
        self.trigger = FailpointTrigger(self.file, self._act)
        self.store = FailpointStore(self.below, self.trigger)

    def _act(self, action: Action) -> None:
        self.acts.append(action)
        if action is Action.KILL:
            raise EndedError

    async def there(self, *paths: str) -> list[bool]:
        return [await self.below.exists(path) is not None for path in paths]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_failpoint_is_read_with_all_its_words() -> None:
    found = parse("action=stop when=after step=order n=3 kind=StopReplica broker=2 topic=a|b*\n")
    assert (found.action, found.moment, found.n) == (Action.STOP, Moment.AFTER, 3)
    assert found.matches(Order("StopReplica", BrokerId(2), ("x", "bc")))
    assert not found.matches(Order("StopReplica", BrokerId(1), ("a",)))
    assert not found.matches(Order("LeaderAndIsr", BrokerId(2), ("a",)))
    assert not found.matches(Order("StopReplica", BrokerId(2), ("x",)))
    assert not found.matches(Write((("set", "/a"),)))


def test_a_write_matches_by_an_operation_that_has_both_the_name_and_the_path() -> None:
    found = parse("path=/brokers/topics/t|/admin/* operation=create step=write when=before action=kill")
    assert found.n == 1
    assert found.matches(Write((("set", "/other"), ("create", "/admin/x"))))
    assert not found.matches(Write((("set", "/admin/x"), ("create", "/other"))))
    assert not found.matches(Write((("create", "/brokers/topics/tt"),)))
    assert not found.matches(Order("LeaderAndIsr", BrokerId(1), ()))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "needs action="),
        ("action=kill when=before", "needs step="),
        ("action=explode when=before step=write", "kill, stop"),
        ("action=kill when=during step=write", "before, after"),
        ("action=kill when=before step=read", "write, order"),
        ("action=kill when=before step=write n=0", "from 1"),
        ("action=kill when=before step=write n=-1", "from 1"),
        ("action=kill when=before step=write n=²", "from 1"),
        ("action=kill when=before step=write n=99999999999", "from 1"),
        ("action=kill when=before step=write n=1 n=2", "twice"),
        ("action=kill when=before step=write path=", "no value"),
        ("action=kill when=before step=write broker=1", "no broker="),
        ("action=kill when=before step=order path=/a", "no path="),
        ("action=kill when=before step=order broker=x", "from 0"),
        ("action=kill when=before step=write wehn=after", "'wehn=after' is not one of"),
        ("kill", "'kill' is not one of"),
        ("action=kill " + "x" * 5_000, "at most"),
    ],
)
def test_what_is_no_failpoint_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(FailpointError, match=said):
        parse(text)


async def test_before_its_write_the_process_ends_and_nothing_is_written(scene: Scene) -> None:
    scene.file.write_text("action=kill when=before step=write n=2 path=/b*")
    await scene.store.create("/a", b"")
    await scene.store.create("/b1", b"")
    with pytest.raises(EndedError):
        await scene.store.create("/b2", b"")
    assert await scene.there("/a", "/b1", "/b2") == [True, True, False]
    assert not scene.file.exists(), "the process that is started next must run on"


async def test_after_its_write_the_process_ends_and_it_is_written(scene: Scene) -> None:
    scene.file.write_text("action=kill when=after step=write")
    with pytest.raises(EndedError):
        await scene.store.multi([Check("/"), Absent("/b"), Create("/a", b"")])
    assert await scene.there("/a") == [True]


async def test_a_batch_is_cut_at_the_group(scene: Scene) -> None:
    """So each number of groups of a batch can have happened: no store promises more of them."""
    groups = [(Create(f"/{name}", b""),) for name in "abc"]
    scene.file.write_text("action=kill when=before step=write n=3")
    with pytest.raises(EndedError):
        await scene.store.write_batch(groups)
    assert await scene.there("/a", "/b", "/c") == [True, True, False]


async def test_a_stopped_process_goes_on_with_what_it_was_about_to_do(scene: Scene) -> None:
    scene.file.write_text("action=stop when=before step=write n=2")
    written, refused, last = await scene.store.write_batch(
        [(Create("/a", b""),), (Set("/none", b"", 0),), (Create("/c", b""),)]
    )
    assert scene.acts == [Action.STOP]
    assert isinstance(written, Written)
    assert isinstance(refused, Refused)
    assert isinstance(last, Written)


async def test_a_failed_write_is_a_step_as_well(scene: Scene) -> None:
    await scene.store.create("/a", b"")
    scene.file.write_text("action=stop when=after step=write")
    with pytest.raises(NodeExists):
        await scene.store.create("/a", b"")
    assert scene.acts == [Action.STOP]


async def test_a_failpoint_that_is_put_there_later_counts_from_then_on_and_fires_once(scene: Scene) -> None:
    await scene.store.create("/a", b"")
    scene.file.write_text("action=stop when=before step=write n=2")
    await scene.store.set("/a", b"1", version=None)
    assert scene.acts == []
    await scene.store.delete("/a", version=None)
    await scene.store.create("/a", b"")
    await scene.store.delete_below("/a")
    assert scene.acts == [Action.STOP]


async def test_an_unreadable_failpoint_fails_the_step_before_it_is_taken(scene: Scene) -> None:
    scene.file.write_bytes(b"\xff\xfe")
    with pytest.raises(FailpointError):
        await scene.store.create("/a", b"")
    assert await scene.there("/a") == [False]


class Broker:
    """A broker that takes every order."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def leader_and_isr(self, request: bytes) -> control_pb2.LeaderAndIsrResponse:
        self.heard.append("LeaderAndIsr")
        return control_pb2.LeaderAndIsrResponse()

    async def stop_replica(self, request: control_pb2.StopReplicaRequest) -> control_pb2.StopReplicaResponse:
        self.heard.append("StopReplica")
        return control_pb2.StopReplicaResponse()

    async def get_replica_log_info(
        self, request: control_pb2.GetReplicaLogInfoRequest, *, timeout_s: float
    ) -> control_pb2.GetReplicaLogInfoResponse:
        self.heard.append("GetReplicaLogInfo")
        return control_pb2.GetReplicaLogInfoResponse()

    async def describe_settings(
        self, request: control_pb2.DescribeBrokerSettingsRequest, *, timeout_s: float
    ) -> control_pb2.DescribeBrokerSettingsResponse:
        self.heard.append("DescribeBrokerSettings")
        return control_pb2.DescribeBrokerSettingsResponse()

    async def close(self) -> None:
        self.heard.append("close")


async def test_orders_are_counted_by_kind_broker_and_topic_and_written_down(scene: Scene) -> None:
    brokers = [Broker(), Broker()]
    one, two = (FailpointChannel(broker, BrokerId(id), scene.trigger) for id, broker in enumerate(brokers, 1))
    scene.file.write_text("action=kill when=before step=order n=2 broker=2 topic=t")

    def order(topic: str) -> bytes:
        return control_pb2.LeaderAndIsrRequest(
            partitions=[control_pb2.LeaderAndIsrPartition(topic=topic)] * 2
        ).SerializeToString()

    await one.leader_and_isr(order("t"))
    await two.leader_and_isr(order("t"))
    await two.leader_and_isr(order("other"))
    await two.get_replica_log_info(control_pb2.GetReplicaLogInfoRequest(), timeout_s=1.0)
    stop = control_pb2.StopReplicaRequest(partitions=[control_pb2.StopReplicaPartition(topic="t")])
    await one.stop_replica(stop)
    with pytest.raises(EndedError):
        await two.stop_replica(stop)
    await two.close()
    assert brokers[0].heard == ["LeaderAndIsr", "StopReplica"]
    assert brokers[1].heard == ["LeaderAndIsr", "LeaderAndIsr", "GetReplicaLogInfo", "close"]
    await scene.store.multi([Check("/"), Create("/a", b"")])
    lines = [json.loads(line) for line in Path(f"{scene.file}.steps").read_text().splitlines()]
    assert lines[:2] == [
        {"order": "LeaderAndIsr", "broker": 1, "topics": ["t"], "number": 1},
        {"taken": "LeaderAndIsr", "broker": 1, "number": 1},
    ]
    assert lines[-2:] == [
        {"order": "StopReplica", "broker": 2, "topics": ["t"], "number": 5},
        {"write": [["create", "/a"]]},
    ]


async def test_an_order_that_fails_is_written_down_with_the_reason(scene: Scene) -> None:
    class Obeying(Broker):
        """A broker that obeys a later controller."""

        async def leader_and_isr(self, request: bytes) -> control_pb2.LeaderAndIsrResponse:
            raise RegnumError(errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH, "there is a later one")

    with pytest.raises(RegnumError, match="later"):
        await FailpointChannel(Obeying(), BrokerId(7), scene.trigger).leader_and_isr(b"")
    last = Path(f"{scene.file}.steps").read_text().splitlines()[-1]
    wanted = {"refused": "LeaderAndIsr", "broker": 7, "number": 1, "reason": "STALE_CONTROLLER_EPOCH"}
    assert json.loads(last) == wanted


def test_the_setting_is_off_and_hidden(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REGNUM_FAILPOINT_FILE", raising=False)
    assert load(ElectionSettings, SETTINGS).failpoint_file is None
    assert load(ElectionSettings, (*SETTINGS, "--failpoint-file=/x")).failpoint_file == Path("/x")
    with pytest.raises(SystemExit):
        load(ElectionSettings, ["--help"])
    shown = capsys.readouterr().out
    assert "--event-log-bytes" in shown
    assert "failpoint" not in shown
