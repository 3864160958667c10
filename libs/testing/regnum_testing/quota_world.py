"""A controller with quotas and quota processes that do what a test says, on a clock that stands still."""

from collections.abc import Sequence

from regnum.types.v1 import errors_pb2
from regnum_election.admission.quota_process import QuotaChannel
from regnum_election.admission.stand_in import Account
from regnum_election.controller import Controller
from regnum_election.decisions.rejection import Rejection
from regnum_election.topics.charging import Answered
from regnum_election.topics.creation import Created, CreationOutcome
from regnum_election.topics.deletion import DeletionOutcome
from regnum_election.topics.requests import DeletionRequest, TopicRequest
from regnum_model.bucket import Limit
from regnum_model.nodes import Address
from regnum_model.quota_changes import EntityChange, LimitChange
from regnum_model.quotas import BURST_KEY, RATE_KEY, QuotaEntity, QuotaProcessNode
from regnum_telemetry.metrics import Metrics

from regnum_testing.clock import FakeClock
from regnum_testing.fake_quota_process import FakeQuotaProcess, NoQuotaProcess
from regnum_testing.reigning import ANYBODY, FakeCluster
from regnum_testing.waiting import DEADLINE_S

CLUSTER = QuotaEntity()
"""The quota of the whole cluster."""

OLD = Account(user="ANONYMOUS", client_id="", strict=False)
"""A caller of an old version: admitted, and told to wait."""
APP = Account(user="ANONYMOUS", client_id="app", strict=True)
"""A caller with a client id."""
THROTTLED = errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED
"""What a refused request is answered."""


def codes(outcomes: tuple[object, ...]) -> list[int]:
    """The error code of each outcome; 0 where it was not refused."""
    return [outcome.code if isinstance(outcome, Rejection) else 0 for outcome in outcomes]


class QuotaWorld:
    """Brokers 1 to 3, a controller, and quota processes as they are started."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.cluster = FakeCluster(self.clock)
        self.limits: dict[QuotaEntity, Limit] = {}
        self.processes: dict[Address, FakeQuotaProcess] = {}
        self.metrics = Metrics()
        """Of every reign."""

    async def begin(self, *, stand_in: Limit | None = None) -> None:
        """Brokers and a controller."""
        await self.cluster.begin(1, 2, 3)
        await self.reign(1, stand_in=stand_in)

    async def reign(self, id: int, *, stand_in: Limit | None = None) -> None:
        """Begin to reign."""
        await self.cluster.reign(id, open_quota=self._open, quota_stand_in=stand_in, metrics=self.metrics)

    @property
    def controller(self) -> Controller:
        """The one that reigns."""
        if self.cluster.controller is None:
            raise AssertionError("nobody reigns")
        return self.cluster.controller

    async def start_process(self, id: int = 1, *, starts_full: bool = True) -> FakeQuotaProcess:
        """A quota process that decides."""
        process = FakeQuotaProcess(self.cluster.server, self.clock, lambda: self.limits, id=id, starts_full=starts_full)
        self.processes[process.address] = process
        await process.activate()
        return process

    def _open(self, node: QuotaProcessNode) -> QuotaChannel:
        return self.processes.get(node.internal) or NoQuotaProcess(node)

    async def set_quota(self, rate: float, burst: float, entity: QuotaEntity = CLUSTER) -> None:
        """Set a quota; processes see it at once."""
        change = EntityChange(
            entity=entity, limits=(LimitChange(key=RATE_KEY, value=rate), LimitChange(key=BURST_KEY, value=burst))
        )
        (refused,) = await self.controller.quota_calls.alter((change,), validate_only=False, wait_s=DEADLINE_S)
        if refused is not None:
            raise AssertionError(refused.message)
        self.limits[entity] = Limit(rate=rate, burst=burst)

    async def create(
        self, names: Sequence[str], *, partitions: int = 1, account: Account = ANYBODY, validate_only: bool = False
    ) -> Answered[CreationOutcome]:
        """Topics of one replica."""
        requests = [
            TopicRequest(name=name, partitions=partitions, replication_factor=1, assignment=(), mutation=None)
            for name in names
        ]
        return await self.controller.topics.create(requests, validate_only=validate_only, wait_s=30.0, account=account)

    async def delete(self, names: Sequence[str], *, account: Account = ANYBODY) -> Answered[DeletionOutcome]:
        """Topics by name."""
        requests = [DeletionRequest(name=name, topic_id="", mutation=None) for name in names]
        return await self.controller.topics.delete(requests, wait_s=30.0, account=account)

    async def close(self) -> None:
        """End everything; raise what failed."""
        await self.cluster.close()


def made(answered: Answered[CreationOutcome]) -> int:
    """How many topics were created."""
    return sum(isinstance(outcome, Created) for outcome in answered.outcomes)
