"""Partitions without an eligible leader, and brokers that never come back."""

from collections.abc import Sequence

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_service.errors import RegnumError

from regnum_client.admin.forgetting import ForgottenBroker
from regnum_client.admin.recovery import DamagedNumber, PartitionRecovery, damaged_from_wire, in_pages
from regnum_client.admin.session import AdminSession, call_s
from regnum_client.cluster.connections import call


class RecoveryAdmin(AdminSession):
    """What is done where something is lost for good."""

    async def recover_partitions(
        self, topic: str, partitions: Sequence[int] = (), *, accept_loss: bool = False
    ) -> tuple[PartitionRecovery, ...]:
        """What is left of partitions without an eligible leader; ``accept_loss`` elects the best replica of each.

        A partition that has a leader, or gets one without loss, is ELECTION_NOT_NEEDED. What is lost stays lost: look
        without ``accept_loss`` first. A call whose outcome is unknown is not sent again and raises; look again then.

        Args:
            topic: name.
            partitions: their numbers; empty: all without a leader.
            accept_loss: whether anything is changed.
        """

        async def ask(request: admin_pb2.RecoverPartitionsRequest) -> admin_pb2.RecoverPartitionsResponse:
            request.header.client_id = self._client_id
            search = self._search()
            while True:
                address = await search.address()
                timeout_s = call_s(search)
                request.timeout_ms = max(1, int(timeout_s * 1000))
                try:
                    return await call(self._connections.admin(address).RecoverPartitions, request, timeout_s=timeout_s)
                except RegnumError as error:
                    unknown = accept_loss and not error.traits.outcome_known
                    # What the controller itself does not know does not exist: waiting cannot help.
                    if unknown or error.code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION:
                        raise search.explained(address, error) from error
                    await search.failed(address, error)

        pages = in_pages(ask, topic=topic, partitions=partitions, accept_loss=accept_loss)
        return tuple([one async for one in pages])

    async def give_up_partitions(
        self, topic: str, partitions: Sequence[int] = (), *, accept_loss: bool = False
    ) -> tuple[DamagedNumber, ...]:
        """Partitions of which what is recorded cannot be read; with ``accept_loss`` they are removed for good.

        All their records are lost then: look without ``accept_loss`` first. It may be called again.

        Args:
            topic: name.
            partitions: their numbers; empty: all that are damaged.
            accept_loss: whether anything is changed.
        """
        search = self._search()
        while True:
            address = await search.address()
            left_s = call_s(search)
            request = admin_pb2.GiveUpPartitionsRequest(
                header=RequestHeader(client_id=self._client_id),
                topic=topic,
                partitions=partitions,
                accept_loss=accept_loss,
                timeout_ms=max(1, int(left_s * 1000)),
            )
            try:
                answer = await call(self._connections.admin(address).GiveUpPartitions, request, timeout_s=left_s + 1)
            except RegnumError as error:
                if error.code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                await search.failed(address, error)
                continue
            return tuple(map(damaged_from_wire, answer.results))

    async def forget_broker(self, broker: int, *, validate_only: bool = False) -> ForgottenBroker:
        """Let no deletion wait any more for a broker that never comes back with its disks; it may be called again.

        Raises INVALID_REQUEST while the broker is registered, and when nothing is known of it.

        Args:
            broker: its id.
            validate_only: only count.
        """
        search = self._search()
        while True:
            address = await search.address()
            left_s = call_s(search)
            request = admin_pb2.ForgetBrokerRequest(
                header=RequestHeader(client_id=self._client_id),
                broker_id=broker,
                validate_only=validate_only,
                timeout_ms=max(1, int(left_s * 1000)),
            )
            try:
                answer = await call(self._connections.admin(address).ForgetBroker, request, timeout_s=left_s + 1)
            except RegnumError as error:
                await search.failed(address, error)
                continue
            return ForgottenBroker(
                deletions=answer.deletions,
                deletions_ended=answer.deletions_ended,
                assigned_partitions=answer.assigned_partitions,
            )
