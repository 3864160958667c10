"""Real quota processes over real stores: one decides, kill -9 moves the seat, and no token is won by it."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest
from regnum.quota.v1 import quota_pb2, quota_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_coordination import open_store
from regnum_coordination.errors import NoNode
from regnum_coordination.port import Create, Store
from regnum_coordination.recipes.folders import ensure_folders
from regnum_model import quotas
from regnum_model.nodes import Address, MalformedNodeError
from regnum_model.quotas import QUOTA_ACTIVE, QuotaEntity, QuotaNode, QuotaProcessNode
from regnum_service.channel import open_channel
from regnum_service.clock import SystemClock
from regnum_service.status import from_rpc_error
from regnum_testing.etcd_server import EtcdServer
from regnum_testing.ports import unused_port
from regnum_testing.waiting import eventually
from regnum_testing.zookeeper_server import ZooKeeperServer

pytestmark = pytest.mark.integration

SESSION_S = 6.0
LONG_SESSION_S = 60.0
"""The longest that the stores grant: what is there in half of it did not wait for its end."""


class Process:
    """A quota process of its own."""

    def __init__(self, folder: Path, coordination: str, id: int, session_s: float) -> None:
        self.id = id
        self.address = Address(host="127.0.0.1", port=unused_port())
        self._folder = folder
        self._command = [
            *(sys.executable, "-P", "-m", "regnum_quota"),
            *("--quota-id", str(id), "--run-dir", str(folder / f"quota-{id}")),
            *("--coordination", coordination, "--session-timeout-s", str(session_s)),
            *("--internal-listen", str(self.address)),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self.refused: int | None = None
        """Code of the last refusal."""

    def start(self) -> None:
        with (self._folder / f"quota-{self.id}.log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def log(self) -> str:
        """The last that it said."""
        path = self._folder / f"quota-{self.id}.log"
        return path.read_text(encoding="utf-8")[-4_000:] if path.exists() else ""

    def check_that_it_runs(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self.log()

    def send(self, signum: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signum)

    def end(self, signum: signal.Signals = signal.SIGKILL) -> int:
        """Signal it, and wait for its end."""
        if self._process is None or self._process.poll() is not None:
            return 0
        self.send(signum)
        return self._process.wait(timeout=20)

    async def admit(self, *permits: int, id: str = "", **other: object) -> quota_pb2.AdmitResponse | None:
        """Ask on Ann's account; None when this process does not decide or does not answer."""
        admission = quota_pb2.Admission(
            request_id=id,
            entity=quota_pb2.MutatingEntity(user="ann"),
            mutations=[quota_pb2.Mutation(name="t", permits=cost) for cost in permits],
        )
        channel = open_channel(self.address)
        try:
            stub = quota_pb2_grpc.QuotaServiceStub(channel)
            return await stub.Admit(quota_pb2.AdmitRequest(admissions=[admission], **other), timeout=3.0)
        except grpc.aio.AioRpcError as error:
            self.refused = from_rpc_error(error).code
        finally:
            await channel.close()
        assert self.refused in {
            errors_pb2.ERROR_CODE_NOT_COORDINATOR,
            errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE,
            errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
        }
        return None

    async def stands_by(self) -> bool:
        """Whether it says itself that it decides nothing."""
        self.check_that_it_runs()
        return await self.admit(1) is None and self.refused == errors_pb2.ERROR_CODE_NOT_COORDINATOR

    async def decides(self) -> bool:
        self.check_that_it_runs()
        return await self.admit() is not None


@pytest.fixture(params=["etcd"])
def coordination(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of a store of its own."""
    server: EtcdServer | ZooKeeperServer
    server = EtcdServer(tmp_path) if request.param == "etcd" else ZooKeeperServer(tmp_path)
    server.start()
    yield f"{request.param}://127.0.0.1:{server.port}"
    server.kill()


@pytest.fixture
async def store(coordination: str) -> AsyncIterator[Store]:
    store = await open_store(coordination, session_timeout_s=LONG_SESSION_S, operation_timeout_s=5.0)
    await ensure_folders(store, quotas.FOLDERS, SystemClock())
    yield store
    await store.close()


@pytest.fixture
def pair(tmp_path: Path, coordination: str, request: pytest.FixtureRequest) -> Iterator[tuple[Process, Process]]:
    """Processes with the session that a test names, or a short one."""
    session_s: float = getattr(request, "param", SESSION_S)
    processes = (Process(tmp_path, coordination, 1, session_s), Process(tmp_path, coordination, 2, session_s))
    yield processes
    for process in processes:
        process.end()
        # Shown where a test failed.
        sys.stdout.write(process.log())


async def start_both(pair: tuple[Process, Process], store: Store) -> None:
    """The first one decides, the second one stands by."""
    one, two = pair
    one.start()
    await eventually(one.decides, what="the first process decides")
    two.start()

    async def registered() -> bool:
        two.check_that_it_runs()
        return await store.exists(quotas.quota_id_path(2)) is not None

    await eventually(registered, what="the second process is registered")


@pytest.mark.parametrize("pair", [LONG_SESSION_S], indirect=True, ids=["long session"])
@pytest.mark.parametrize("coordination", ["etcd", pytest.param("zookeeper", marks=pytest.mark.full)], indirect=True)
async def test_kill_9_moves_the_seat_at_once_and_the_tokens_with_it(
    store: Store, pair: tuple[Process, Process]
) -> None:
    one, two = pair
    await start_both(pair, store)
    data = QuotaNode(config={quotas.RATE_KEY: "0.01", quotas.BURST_KEY: "10"}).encode()
    await store.multi([Create(QuotaEntity(user="ann").path, data), Create(quotas.change_path(1), b"")])
    before = await one.admit(6, 6, 6, id="r", changes_seen=1)
    assert before is not None
    assert list(before.verdicts[0].admitted) == [True, True, False]
    assert before.buckets[0].tokens == pytest.approx(-2, abs=0.1)

    one.end(signal.SIGKILL)
    await eventually(two.decides, within_s=LONG_SESSION_S / 2, what="the standby decides")
    after = await two.admit(1, changes_seen=1, known=before.buckets)
    assert after is not None
    assert (list(after.verdicts[0].admitted), after.incarnation != before.incarnation) == ([False], True)

    # The killed one comes back, knows its own registration, and stands by.
    one.start()

    async def back() -> bool:
        try:
            node = QuotaProcessNode.decode((await store.get(quotas.quota_id_path(1))).data)
        except NoNode:
            return False
        return node.incarnation != before.incarnation

    await eventually(back, what="the first process is back")
    assert not await one.decides()
    await eventually(one.stands_by, what="the first process stands by")
    # And the only one that is left starts with nothing where nobody knows better (safety rule S21).
    two.end(signal.SIGTERM)
    await eventually(one.decides, what="the first process decides again")
    alone = await one.admit(1, 1, changes_seen=1)
    assert alone is not None
    assert list(alone.verdicts[0].admitted) == [True, False]


async def test_a_paused_process_judges_nothing_when_it_wakes_after_its_session(
    store: Store, pair: tuple[Process, Process]
) -> None:
    """Silence is no proof of death: the seat moves when the session ends, and whoever wakes knows that it is over."""
    one, two = pair
    await start_both(pair, store)
    one.send(signal.SIGSTOP)
    try:
        await eventually(two.decides, within_s=SESSION_S * 4, what="the standby decides")
    finally:
        one.send(signal.SIGCONT)
    answers = [await one.admit(1) for _ in range(5)]
    assert answers == [None] * 5
    await eventually(one.stands_by, what="the first process stands by")
    assert QuotaProcessNode.decode((await store.get(QUOTA_ACTIVE)).data).id == 2


async def test_what_people_write_over_the_seat_blocks_nobody(store: Store, pair: tuple[Process, Process]) -> None:
    await start_both(pair, store)

    async def decider(other_than: str) -> str:
        """Incarnation of the next active process, which the store and the process itself agree on."""
        found: list[str] = []

        async def answers() -> bool:
            try:
                named = QuotaProcessNode.decode((await store.get(QUOTA_ACTIVE)).data)
            except (NoNode, MalformedNodeError):
                return False
            answer = await pair[named.id - 1].admit()
            if answer is None or answer.incarnation != named.incarnation or named.incarnation == other_than:
                return False
            found.append(named.incarnation)
            return True

        await eventually(answers, what="another run decides")
        return found[0]

    first = await decider("")
    await store.delete(QUOTA_ACTIVE, version=0)
    second = await decider(first)
    # A node that nobody can read.
    await store.set(QUOTA_ACTIVE, b"?", version=0)
    assert len({first, second, await decider(second)}) == 3
