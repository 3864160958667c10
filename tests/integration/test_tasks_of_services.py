"""Every task of every service is cancelled once, as a framework may: the service goes on, or ends and says why.

All four services run in this process, over a store in memory, so that their tasks can be reached.
"""

import asyncio
import inspect
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from regnum_broker.broker import Broker
from regnum_broker.settings import BrokerSettings
from regnum_election.service import ElectionService
from regnum_election.settings import ElectionSettings
from regnum_metadata.service import MetadataService
from regnum_metadata.settings import MetadataSettings
from regnum_quota.service import QuotaService
from regnum_quota.settings import QuotaSettings
from regnum_service.clock import SystemClock
from regnum_service.errors import ExitStatus
from regnum_service.settings import load
from regnum_service.store_session import ToldStore
from regnum_service.supervisor import Supervisor
from regnum_testing.ports import unused_port
from regnum_testing.waiting import until, within

ROOT = Path(__file__).parents[2]
ENDS_WITHIN_S = 30.0
"""Steps of an end have ten seconds each; none of them is to need it."""
FOR_ITS_CALL = ("HandleExceptions[", "rpc_task")
"""Tasks of gRPC's server, one for each call: what is cancelled is the call."""


class Cluster:
    """One process of each service."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._store = f"memory://{uuid.uuid4().hex}"
        self.supervisors: dict[str, Supervisor] = {}
        self._start: dict[str, Callable[[Supervisor], Awaitable[None]]] = {
            "election": self._election,
            "quota": self._quota,
            "metadata": self._metadata,
            "broker": self._broker,
        }

    def _flags(self, service: str, *listeners: str) -> list[str]:
        listens = [part for name in listeners for part in (f"--{name}-listen", f"127.0.0.1:{unused_port()}")]
        home = "data-dir" if service == "broker" else "run-dir"
        told = {f"{service}-id": "1", home: str(self._folder / service), "coordination": self._store}
        return [*(part for name, value in told.items() for part in (f"--{name}", value)), *listens]

    async def _election(self, supervisor: Supervisor) -> None:
        settings = load(ElectionSettings, self._flags("election", "client", "internal", "lifeline"))
        await ElectionService(settings, supervisor=supervisor, clock=SystemClock()).start()

    async def _quota(self, supervisor: Supervisor) -> None:
        settings = load(QuotaSettings, self._flags("quota", "internal"))
        await QuotaService(settings, supervisor=supervisor, clock=SystemClock()).start()

    async def _metadata(self, supervisor: Supervisor) -> None:
        settings = load(MetadataSettings, self._flags("metadata", "client", "internal"))
        await MetadataService(settings, supervisor=supervisor, clock=SystemClock()).start()

    async def _broker(self, supervisor: Supervisor) -> None:
        flags = [*self._flags("broker", "client", "internal"), "--termination-grace-s", "0"]
        told = load(BrokerSettings, flags)
        broker = Broker(told, supervisor=supervisor, open_session=ToldStore(told).open, clock=SystemClock())
        await broker.start()

    async def start(self) -> None:
        """Start what does not run."""
        for service, start in self._start.items():
            if service not in self.supervisors:
                self.supervisors[service] = Supervisor(service)
                await within(start(self.supervisors[service]))

    async def end_what_failed(self) -> list[str]:
        """Why services ended, by what they say; they are gone then."""
        said = []
        for service, supervisor in tuple(self.supervisors.items()):
            if supervisor.stopping:
                assert supervisor.exit_status is ExitStatus.FAILED
                assert supervisor.reason is not None
                said.append(supervisor.reason)
                del self.supervisors[service]
                await within(supervisor.unwind(), ENDS_WITHIN_S)
        return said

    async def stop(self) -> None:
        """End everything, as at SIGTERM."""
        for service in reversed(self._start):
            if (supervisor := self.supervisors.pop(service, None)) is not None:
                await within(supervisor.unwind(), ENDS_WITHIN_S)


def kind_of(task: "asyncio.Task[object]") -> str | None:
    """By what a task is known again after it was begun anew; None: it is not the product's."""
    coroutine = task.get_coro()
    if not inspect.iscoroutine(coroutine) or task.get_name().startswith(FOR_ITS_CALL):
        return None
    file = Path(coroutine.cr_code.co_filename)
    if not file.is_relative_to(ROOT) or file.is_relative_to(ROOT / "tests") or ".venv" in file.parts:
        return None
    name = task.get_name()
    return coroutine.__qualname__ if name.startswith("Task-") else name


def tasks() -> dict[str, "asyncio.Task[object]"]:
    """Of the product, one of each kind."""
    return {kind: task for task in asyncio.all_tasks() if (kind := kind_of(task)) is not None}


# One that ends in the moment of its start leaves the loop of a thread that never ran to the end of its process.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.full
async def test_every_task_that_is_cancelled_is_begun_anew_or_ends_its_service_with_words(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    await cluster.start()
    await until(lambda: {"dispatch-1-control", "metadata-to-broker-1", "term"} <= tasks().keys(), "they are at work")
    left, begun_anew, said = set(tasks()), [], dict[str, list[str]]()
    assert len(left) > 60
    while left:
        await cluster.start()
        await until(lambda: not left.isdisjoint(tasks()), f"one of {left}")
        kind, victim = next((kind, task) for kind, task in tasks().items() if kind in left)
        left.discard(kind)
        victim.cancel()

        def is_over(kind: str = kind, victim: object = victim) -> bool:
            ended = any(one.stopping for one in cluster.supervisors.values())
            return ended or (kind in tasks() and tasks()[kind] is not victim)

        await until(is_over, kind)
        if words := await cluster.end_what_failed():
            said[kind] = words
        else:
            begun_anew.append(kind)
    await cluster.stop()
    assert all("cancelled" in words[0] for words in said.values()), said
    assert len(said) > 50, begun_anew
