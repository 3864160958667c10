"""Elections, partitions without a leader and brokers as clients meet them: answers that a test writes."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError

if TYPE_CHECKING:
    from regnum_testing.fake_cluster import FakeCluster

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


@dataclass(slots=True)
class LeaderAnswers:
    """What the controller answers, and what it was asked."""

    elections: Sequence[admin_pb2.ElectLeadersResult] = ()
    """Partitions that an election would be about."""
    page: int = 1_000
    """Partitions of one answer, where none are named."""
    offline: Sequence[admin_pb2.OfflinePartition] = ()
    """Partitions without a leader."""
    offline_page: int = 10_000
    """So many of them in one answer at most."""
    brokers: Sequence[admin_pb2.DescribedBroker] = ()
    """What is known of each that is live or assigned."""
    requests: list[admin_pb2.ElectLeadersRequest] = field(default_factory=list)
    """Elections that were asked for."""
    has_successor: bool = True
    """Whether another election process takes over from one that resigns."""
    elected: set[tuple[str, int]] = field(default_factory=set)
    """Partitions that were elected in."""

    def elect(self, request: admin_pb2.ElectLeadersRequest) -> admin_pb2.ElectLeadersResponse:
        """Elect what is asked for; of all as much as a page holds."""
        asked = admin_pb2.ElectLeadersRequest()
        asked.CopyFrom(request)
        self.requests.append(asked)
        named = {topic.topic: tuple(topic.partitions) for topic in request.topics}
        wanted = [one for one in self.elections if (one.topic, one.partition) not in self.elected]
        if named:
            wanted = [
                one
                for one in wanted
                if one.topic in named and (not named[one.topic] or one.partition in named[one.topic])
            ]
        page = wanted if named else wanted[: self.page]
        answer = admin_pb2.ElectLeadersResponse(left=len(wanted) - len(page))
        for one in page:
            result = answer.results.add()
            result.CopyFrom(one)
            result.leader_epoch = -1
            if not request.validate_only and not one.error_code:
                result.leader_epoch = 8
                self.elected.add((one.topic, one.partition))
        return answer


class FakeLeaders(ABC):
    """A part of a fake election process."""

    cluster: "FakeCluster"

    @abstractmethod
    def _authority(self) -> None:
        """Refuse the call where this process is not the controller."""

    @abstractmethod
    def _answer_or_not(self) -> None:
        """Lose the answer where the test wants that."""

    async def ElectLeaders(  # noqa: N802
        self, request: admin_pb2.ElectLeadersRequest, _context: Context
    ) -> admin_pb2.ElectLeadersResponse:
        """Elect."""
        self.cluster.calls["ElectLeaders"] += 1
        self._authority()
        answer = self.cluster.leaders.elect(request)
        self._answer_or_not()
        return answer

    async def ListOfflinePartitions(  # noqa: N802
        self, request: admin_pb2.ListOfflinePartitionsRequest, _context: Context
    ) -> admin_pb2.ListOfflinePartitionsResponse:
        """List."""
        self._authority()
        found = [one for one in self.cluster.leaders.offline if not request.topics or one.topic in request.topics]
        first, page = int(request.page_token or 0), self.cluster.leaders.offline_page
        behind = first + min(request.page_size or page, page)
        return admin_pb2.ListOfflinePartitionsResponse(
            partitions=found[first:behind],
            total=len(found),
            next_page_token=str(behind) if behind < len(found) else "",
        )

    async def DescribeBrokers(  # noqa: N802
        self, request: admin_pb2.DescribeBrokersRequest, _context: Context
    ) -> admin_pb2.DescribeBrokersResponse:
        """Describe."""
        self._authority()
        known = {one.broker_id: one for one in self.cluster.leaders.brokers}
        if not known:
            known = {id: self._described(id) for id in self.cluster.brokers}
        nobody = errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE
        return admin_pb2.DescribeBrokersResponse(
            brokers=[
                known.get(id) or admin_pb2.DescribedBroker(broker_id=id, error_code=nobody)
                for id in request.broker_ids or known
            ]
        )

    def _described(self, id: int) -> admin_pb2.DescribedBroker:
        """A broker of which the test says nothing: it has what it is assigned."""
        cluster = self.cluster
        replicas = sum(id in cluster.replicas.get(place, tuple(cluster.brokers)) for place in cluster.partitions)
        return admin_pb2.DescribedBroker(broker_id=id, live=True, replicas=replicas, draining=id in cluster.draining)

    async def DrainBroker(  # noqa: N802
        self, request: admin_pb2.DrainBrokerRequest, _context: Context
    ) -> admin_pb2.DrainBrokerResponse:
        """Mark a broker, or take that back."""
        self._authority()
        self.cluster.calls["DrainBroker"] += 1
        known = next((one for one in self.cluster.leaders.brokers if one.broker_id == request.broker_id), None)
        changed = (request.broker_id in self.cluster.draining) is request.undo
        if changed and not request.validate_only:
            self.cluster.draining ^= {request.broker_id}
        if known is not None:
            known.draining = request.broker_id in self.cluster.draining
        self._answer_or_not()
        return admin_pb2.DrainBrokerResponse(changed=changed)

    async def ResignController(  # noqa: N802
        self, request: admin_pb2.ResignControllerRequest, _context: Context
    ) -> admin_pb2.ResignControllerResponse:
        """Resign; the other election process is the controller, unless there is none."""
        self._authority()
        cluster = self.cluster
        cluster.calls["ResignController"] += 1
        if request.controller_epoch != cluster.controller_epoch:
            raise RegnumError(errors_pb2.ERROR_CODE_NOT_CONTROLLER, "another reign")
        former = admin_pb2.ResignControllerResponse(
            controller_id=cluster.controller, controller_epoch=cluster.controller_epoch
        )
        if cluster.leaders.has_successor:
            cluster.controller, cluster.controller_epoch = 3 - cluster.controller, cluster.controller_epoch + 1
            cluster.version += 1
        self._answer_or_not()
        return former
