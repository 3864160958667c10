"""Leaders of partitions and of the cluster, asked of the controller."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.nodes import Address
from regnum_service.errors import RegnumError

from regnum_client.admin.leaders.brokers import BrokerDescription, Resignation, broker_from_wire
from regnum_client.admin.leaders.elections import (
    ElectionResult,
    ElectionType,
    OfflinePartition,
    OfflinePartitions,
    election_from_wire,
    election_to_wire,
    offline_from_wire,
)
from regnum_client.admin.session import AdminSession, call_s
from regnum_client.cluster.connections import call
from regnum_client.cluster.controller_search import no_controller

A = TypeVar("A")

POLL_S: Final = 0.05
"""Pause between two looks for the next controller."""


class LeaderAdmin(AdminSession):
    """Elections, partitions without a leader, brokers, the controller's office."""

    async def elect_leaders(
        self,
        type_: ElectionType,
        partitions: Mapping[str, Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> tuple[ElectionResult, ...]:
        """Elect leaders, each partition on its own.

        An unclean election loses what only others had: look with ``validate_only`` first. One whose outcome is unknown
        is not sent again and raises; look again then.

        Args:
            type_: how.
            partitions: partition numbers by topic; no numbers: all of the topic. None: wherever needed.
            validate_only: look only.
        """
        request = election_to_wire(type_, partitions or {}, validate_only=validate_only)
        request.header.client_id = self._client_id
        results: dict[tuple[str, int], ElectionResult] = {}
        while True:

            async def ask(address: Address, timeout_s: float) -> admin_pb2.ElectLeadersResponse:
                request.timeout_ms = max(1, int(timeout_s * 1000))
                return await call(self._connections.admin(address).ElectLeaders, request, timeout_s=timeout_s + 1)

            answer = await self._ask(ask, repeats=validate_only or type_ is ElectionType.PREFERRED)
            news = [election_from_wire(result) for result in answer.results]
            results.update({(one.topic, one.partition): one for one in news})
            if not answer.left or validate_only or all(one.failure is not None for one in news):
                return tuple(results.values())

    async def list_offline_partitions(self, topics: Sequence[str] = (), *, limit: int = 0) -> OfflinePartitions:
        """Partitions without a leader, and why.

        Args:
            topics: only those of these; empty: of all.
            limit: how many at most; 0: all.
        """
        request = admin_pb2.ListOfflinePartitionsRequest(header=RequestHeader(client_id=self._client_id), topics=topics)
        found: list[OfflinePartition] = []

        async def ask(address: Address, timeout_s: float) -> admin_pb2.ListOfflinePartitionsResponse:
            return await call(self._connections.admin(address).ListOfflinePartitions, request, timeout_s=timeout_s)

        while True:
            request.page_size = max(0, limit - len(found))
            answer = await self._ask(ask)
            found.extend(map(offline_from_wire, answer.partitions))
            request.page_token = answer.next_page_token
            if not request.page_token or 0 < limit <= len(found):
                return OfflinePartitions(partitions=tuple(found), total=answer.total)

    async def describe_brokers(self, ids: Sequence[int] = ()) -> tuple[BrokerDescription, ...]:
        """Brokers by id: these, or all that are live or that partitions are assigned to."""
        request = admin_pb2.DescribeBrokersRequest(header=RequestHeader(client_id=self._client_id), broker_ids=ids)

        async def ask(address: Address, timeout_s: float) -> admin_pb2.DescribeBrokersResponse:
            return await call(self._connections.admin(address).DescribeBrokers, request, timeout_s=timeout_s)

        return tuple(broker_from_wire(broker) for broker in (await self._ask(ask)).brokers)

    async def drain_broker(self, broker: int, *, undo: bool = False, validate_only: bool = False) -> bool:
        """Have nothing new placed on a broker, or ``undo`` that; whether it changed anything. Moves nothing.

        Raises INVALID_REQUEST when it is unknown. It may be repeated.
        """
        request = admin_pb2.DrainBrokerRequest(
            header=RequestHeader(client_id=self._client_id), broker_id=broker, undo=undo, validate_only=validate_only
        )

        async def ask(address: Address, timeout_s: float) -> admin_pb2.DrainBrokerResponse:
            request.timeout_ms = max(1, int(timeout_s * 1000))
            return await call(self._connections.admin(address).DrainBroker, request, timeout_s=timeout_s)

        return (await self._ask(ask)).changed

    async def describe_broker(self, id: int) -> BrokerDescription:
        """One broker. Raises BROKER_ID_NOT_REGISTERED when it is unknown."""
        (broker,) = await self.describe_brokers([id])
        if not broker.known:
            raise RegnumError(
                errors_pb2.ERROR_CODE_BROKER_ID_NOT_REGISTERED,
                f"broker {id} is not registered, and no partition is assigned to it; see `regnum brokers list`",
            )
        return broker

    async def resign_controller(self) -> Resignation:
        """End the present controller's reign, and wait for the next one. Raises RegnumError.

        A call whose outcome is unknown is sent again for the same reign only, so that no second one ends.
        """
        metadata = self._open()
        controller = (await metadata.newer_than(self._clock.monotonic(), timeout_s=self._timeout_s)).controller
        if controller is None:
            nobody = RegnumError(errors_pb2.ERROR_CODE_NOT_CONTROLLER, "the brokers name none")
            raise no_controller(None, nobody)
        request = admin_pb2.ResignControllerRequest(
            header=RequestHeader(client_id=self._client_id), controller_epoch=controller.epoch
        )
        deadline_s = self._clock.monotonic() + self._timeout_s
        unanswered: RegnumError | None = None
        try:
            await call(self._connections.admin(controller.address).ResignController, request, timeout_s=self._timeout_s)
        except RegnumError as error:
            if error.traits.outcome_known and error.code != errors_pb2.ERROR_CODE_NOT_CONTROLLER:
                raise
            unanswered = error
        ended_s = self._clock.monotonic()
        while True:
            left_s = max(0.1, deadline_s - self._clock.monotonic())
            successor = (await metadata.newer_than(self._clock.monotonic(), timeout_s=left_s)).controller
            if successor is not None and successor.epoch > controller.epoch:
                break
            if self._clock.monotonic() >= deadline_s:
                if unanswered is not None:
                    raise no_controller(controller, unanswered) from unanswered
                raise RegnumError(
                    errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
                    f"the term of epoch {controller.epoch} is over, and no process took over in {self._timeout_s:g} s;"
                    " brokers and clients go on; start an election process, or see its log",
                )
            await self._clock.sleep(POLL_S)
        return Resignation(
            controller_id=controller.id,
            controller_epoch=controller.epoch,
            successor_id=successor.id,
            successor_epoch=successor.epoch,
            without_controller_s=self._clock.monotonic() - ended_s,
        )

    async def _ask(self, ask: Callable[[Address, float], Awaitable[A]], *, repeats: bool = True) -> A:
        """Ask the controller, whoever that is by then.

        Args:
            ask: sends the call to an address, with a time-out in seconds.
            repeats: whether a call whose outcome is unknown is sent again.
        """
        search = self._search()
        while True:
            address = await search.address()
            try:
                return await ask(address, call_s(search))
            except RegnumError as error:
                if not repeats and not error.traits.outcome_known:
                    raise search.explained(address, error) from error
                await search.failed(address, error)
