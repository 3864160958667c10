"""Whole quota processes over a memory store and real listeners: who answers, and what becomes of them."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from regnum.quota.v1 import quota_pb2, quota_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryStore
from regnum_coordination.drivers.memory.shared import server_named
from regnum_model import quotas
from regnum_model.nodes import Address
from regnum_model.quotas import QUOTA_ACTIVE, QuotaEntity, QuotaNode, QuotaProcessNode
from regnum_quota.service import QuotaService
from regnum_quota.settings import QuotaSettings
from regnum_service.channel import open_channel
from regnum_service.clock import SystemClock
from regnum_service.errors import StartRefusedError
from regnum_service.settings import load
from regnum_service.status import from_rpc_error
from regnum_service.supervisor import Supervisor
from regnum_testing.ports import unused_port
from regnum_testing.waiting import DEADLINE_S, eventually, within

SERVICE = "regnum.quota.v1.QuotaService"


class Process:
    """A quota process in this one."""

    def __init__(self, store: str, folder: Path, id: int, *flags: str) -> None:
        self.address = Address(host="127.0.0.1", port=unused_port())
        told = ["--quota-id", str(id), "--run-dir", str(folder / f"quota-{id}"), "--internal-listen", str(self.address)]
        self.supervisor = Supervisor("quota")
        self.service = QuotaService(
            load(QuotaSettings, [*told, "--coordination", f"memory://{store}", *flags]),
            supervisor=self.supervisor,
            clock=SystemClock(),
        )
        self.channel: grpc.aio.Channel | None = None

    async def start(self) -> None:
        await self.service.start()
        self.channel = open_channel(self.address)
        await eventually(self.serving, what="health")

    async def stop(self) -> None:
        if self.channel is not None:
            await self.channel.close()
        await self.supervisor.unwind()

    async def serving(self) -> bool:
        stub = health_pb2_grpc.HealthStub(self.channel)
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=SERVICE), timeout=DEADLINE_S)
        return answer.status == health_pb2.HealthCheckResponse.SERVING

    async def admit(self, *permits: int, **other: object) -> quota_pb2.AdmitResponse:
        admission = quota_pb2.Admission(
            entity=quota_pb2.MutatingEntity(user="ann"),
            mutations=[quota_pb2.Mutation(name="t", permits=cost) for cost in permits],
        )
        stub = quota_pb2_grpc.QuotaServiceStub(self.channel)
        return await stub.Admit(quota_pb2.AdmitRequest(admissions=[admission], **other), timeout=DEADLINE_S)

    async def decides(self) -> bool:
        try:
            await self.admit()
        except grpc.aio.AioRpcError as error:
            refused = from_rpc_error(error)
        else:
            return True
        assert refused.code == errors_pb2.ERROR_CODE_NOT_COORDINATOR
        return False


class Processes:
    """Several of them, and their store."""

    def __init__(self, folder: Path) -> None:
        self.name = uuid.uuid4().hex
        self.server = server_named(self.name)
        self.store = MemoryStore(self.server)
        self.folder = folder
        self.all: list[Process] = []

    async def start(self, id: int, *flags: str) -> Process:
        process = Process(self.name, self.folder, id, *flags)
        self.all.append(process)
        await process.start()
        return process

    async def active(self) -> QuotaProcessNode:
        return QuotaProcessNode.decode((await self.store.get(QUOTA_ACTIVE)).data)

    async def session_of(self, path: str) -> int:
        owner = (await self.store.get(path)).stat.ephemeral_owner
        assert owner is not None
        return owner


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncIterator[Processes]:
    processes = Processes(tmp_path)
    yield processes
    for process in processes.all:
        await process.stop()
        assert isinstance(process.supervisor.failure, StartRefusedError | None)
    assert processes.server.watches_open() == 0


async def test_one_decides_the_others_stand_by_and_all_are_healthy(processes: Processes) -> None:
    one = await processes.start(1)
    await eventually(one.decides)
    two = await processes.start(2)
    assert not await two.decides()
    active = await processes.active()
    assert (active.id, active.internal) == (1, one.address)
    registered = QuotaProcessNode.decode((await processes.store.get(quotas.quota_id_path(1))).data)
    assert (registered, (await one.admit()).incarnation) == (active, active.incarnation)


async def test_a_lost_session_ends_the_term_and_the_next_one_has_a_name_of_its_own(processes: Processes) -> None:
    one = await processes.start(1)
    await eventually(one.decides)
    data = QuotaNode(config={quotas.RATE_KEY: "0.001", quotas.BURST_KEY: "10"}).encode()
    await processes.store.create(QuotaEntity(user="ann").path, data)
    await processes.store.create(quotas.change_path(1), b"")
    first = await one.admit(15, changes_seen=1)
    assert first.buckets[0].tokens == pytest.approx(-5, abs=0.1)
    processes.server.expire(await processes.session_of(QUOTA_ACTIVE))

    async def decides_anew() -> bool:
        return await one.decides() and (await one.admit()).incarnation != first.incarnation

    await eventually(decides_anew)
    # Nobody tells it what was there: the bucket starts empty (safety rule S21).
    again = await one.admit(1)
    assert (list(again.verdicts[0].admitted), again.buckets[0].tokens) == ([True], pytest.approx(-1, abs=0.1))


async def test_a_standby_takes_over_with_what_the_controller_knows(processes: Processes) -> None:
    one = await processes.start(1)
    await eventually(one.decides)
    two = await processes.start(2)
    data = QuotaNode(config={quotas.RATE_KEY: "0.001", quotas.BURST_KEY: "10"}).encode()
    await processes.store.create(QuotaEntity(user="ann").path, data)
    first = await one.admit(15, changes_seen=1)
    await one.stop()
    await eventually(two.decides)
    second = await two.admit(1, known=first.buckets, changes_seen=1)
    assert list(second.verdicts[0].admitted) == [False]
    assert second.verdicts[0].throttle_time_ms == pytest.approx(5_000_000, rel=0.01)


async def test_a_seat_taken_away_by_hand_is_lost_and_won_again(processes: Processes) -> None:
    one = await processes.start(1)
    await eventually(one.decides)
    before = (await processes.active()).incarnation
    await processes.store.delete(QUOTA_ACTIVE, version=None)
    await eventually(one.decides)

    async def anew() -> bool:
        return await one.decides() and (await one.admit()).incarnation != before

    await eventually(anew)
    node = await processes.active()
    assert (node.id, node.incarnation) == (1, (await one.admit()).incarnation)


async def test_a_registration_removed_by_hand_is_made_again_and_the_term_goes_on(processes: Processes) -> None:
    one = await processes.start(1)
    await eventually(one.decides)
    incarnation = (await one.admit()).incarnation
    await processes.store.delete(quotas.quota_id_path(1), version=None)

    async def there() -> bool:
        return await processes.store.exists(quotas.quota_id_path(1)) is not None

    await eventually(there)
    assert (await one.admit()).incarnation == incarnation


async def test_an_id_that_another_process_has_is_refused(processes: Processes, tmp_path: Path) -> None:
    await processes.start(1)
    other = Process(processes.name, tmp_path / "elsewhere", 1, "--session-timeout-s", "1")
    processes.all.append(other)
    await other.service.start()
    await within(other.supervisor.run_until_stopped())
    assert isinstance(other.supervisor.failure, StartRefusedError)
    assert "/quota/ids/1 is held by another live process" in str(other.supervisor.failure)


async def test_exempt_users_are_named_in_the_settings(processes: Processes) -> None:
    one = await processes.start(1, "--exempt-users", " root, ann,")
    await eventually(one.decides)
    data = QuotaNode(config={quotas.RATE_KEY: "1"}).encode()
    await processes.store.create(QuotaEntity().path, data)
    answer = await one.admit(500, 500, changes_seen=1)
    assert (list(answer.verdicts[0].admitted), len(answer.buckets)) == ([True, True], 0)
    assert await asyncio.wait_for(one.serving(), DEADLINE_S)


@pytest.mark.parametrize(
    ("text", "users"),
    [
        ("root,ann", {"root", "ann"}),
        ("CN=admin,OU=Ops,O=Example", {"CN=admin,OU=Ops,O=Example"}),
        ("User:CN=admin,OU=Ops,O=Example; root", {"CN=admin,OU=Ops,O=Example", "root"}),
        ('"a;b";User:', {"a;b", "User:"}),
    ],
)
def test_distinguished_names_are_exempt_whole(text: str, users: set[str]) -> None:
    flags = ["--coordination", "etcd://h:1", "--quota-id", "1", "--internal-listen", "127.0.0.1:1"]
    assert load(QuotaSettings, [*flags, "--exempt-users", text]).exempt == users


@pytest.mark.parametrize(
    ("users", "says"),
    [
        (",".join(f"u{n}" for n in range(501)), "name at most 500"),
        ("u" * 1025, "at most 1024"),
        (";".join(f"{n:0999d}" for n in range(130)), "together"),
    ],
)
def test_more_exempt_users_than_the_store_can_name_are_refused(
    users: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--coordination", "etcd://h:1", "--quota-id", "1", "--internal-listen", "127.0.0.1:1"]
    with pytest.raises(SystemExit):
        load(QuotaSettings, [*flags, "--exempt-users", users])
    assert says in capsys.readouterr().err
