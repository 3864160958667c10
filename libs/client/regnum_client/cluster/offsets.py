"""Asks leaders for first and last offsets, until each partition has been answered."""

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp
from regnum.broker.v1.log_pb2 import (
    EarliestOffset,
    LatestOffset,
    ListOffsetsRequest,
    MaxTimestampOffset,
    OffsetQuery,
    OffsetResult,
)
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.nodes import Address
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_client.cluster.connections import Connections, call
from regnum_client.cluster.hints import hints_of
from regnum_client.cluster.metadata import Metadata
from regnum_client.cluster.pace import retry_delay_ms
from regnum_client.cluster.view import LeaderTerm
from regnum_client.errors import BackgroundTaskError
from regnum_client.records import TopicPartition
from regnum_client.tasks import together

FIRST: Final = -2
"""Query for the first offset of the log."""
HIGH_WATERMARK: Final = -1
"""Query for the offset below which records are committed."""
MAX_TIMESTAMP: Final = -3
"""Query for the committed record with the largest timestamp (KIP-734)."""

NEWS_S: Final = 2.0
"""How long one look waits for metadata that says who leads by now."""
_MOVED: Final = frozenset(
    {
        errors_pb2.ERROR_CODE_NOT_LEADER_OR_FOLLOWER,
        errors_pb2.ERROR_CODE_FENCED_LEADER_EPOCH,
        errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE,
    }
)
"""Answers after which another broker may know more."""


class OffsetAndTimestamp(NamedTuple):
    """A record, by its offset.

    >>> OffsetAndTimestamp(7, 1_700_000_000_000).offset
    7
    """

    offset: int
    """Its offset."""
    timestamp_ms: int | None
    """Its timestamp, milliseconds since 1970; None: its batch cannot be decoded, which begins at the offset."""


class OffsetLookup:
    """ListOffsets across brokers and changes of leader."""

    def __init__(
        self,
        connections: Connections,
        metadata: Metadata,
        *,
        clock: Clock,
        chance: random.Random,
        client_id: str,
        request_timeout_s: float,
    ) -> None:
        self._connections: Final = connections
        self._metadata: Final = metadata
        self._clock: Final = clock
        self._chance: Final = chance
        self._header: Final = RequestHeader(client_id=client_id)
        self._request_timeout_s: Final = request_timeout_s

    async def look_up(
        self, partitions: Iterable[TopicPartition], query: int, *, timeout_s: float
    ) -> dict[TopicPartition, int]:
        """``FIRST``, ``HIGH_WATERMARK``, or the first offset at or after a time in milliseconds.

        Raises the last answer when the time is up, and one that no repeat can change at once.
        """
        found: dict[TopicPartition, int] = {}
        missing = list(dict.fromkeys(partitions))
        began_s = self._clock.monotonic()
        while missing:
            errors: list[RegnumError] = []
            for partition, outcome in (await self._round(missing, query)).items():
                if isinstance(outcome, RegnumError):
                    errors.append(outcome)
                else:
                    found[partition] = outcome.offset
            if errors:
                # One that no repeat can change comes first.
                error = min(errors, key=lambda one: one.traits.retriable)
                lasted_s = self._clock.monotonic() - began_s
                if not error.traits.retriable or lasted_s >= timeout_s:
                    raise error
                await self._clock.sleep(retry_delay_ms(lasted_s * 1000, self._chance.random()) / 1000)
                for partition in missing:
                    self._metadata.keep(partition.topic)
                try:
                    await self._metadata.newer_than(self._clock.monotonic(), timeout_s=timeout_s - lasted_s)
                except BackgroundTaskError:
                    raise
                except RegnumError:
                    # The time is up; what a leader said says more than that metadata did not come.
                    raise error from None
            missing = [partition for partition in missing if partition not in found]
        return found

    async def look_up_now(
        self, partitions: Iterable[TopicPartition], query: int
    ) -> dict[TopicPartition, int | RegnumError]:
        """What leaders say at this moment, for each partition; those that have moved are asked a second time."""
        found = await self._results_now(partitions, query)
        return {one: said if isinstance(said, RegnumError) else said.offset for one, said in found.items()}

    async def look_up_max_timestamps_now(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndTimestamp | RegnumError | None]:
        """The same of the records with the largest timestamps; None: no record has one."""
        found = await self._results_now(partitions, MAX_TIMESTAMP)
        return {one: said if isinstance(said, RegnumError) else _record_of(said) for one, said in found.items()}

    async def _results_now(
        self, partitions: Iterable[TopicPartition], query: int
    ) -> dict[TopicPartition, OffsetResult | RegnumError]:
        found = await self._round(dict.fromkeys(partitions), query)
        moved = [one for one, said in found.items() if isinstance(said, RegnumError) and said.code in _MOVED]
        if moved:
            try:
                await self._metadata.newer_than(self._clock.monotonic(), timeout_s=NEWS_S)
            except BackgroundTaskError:
                raise
            except RegnumError:
                # Nobody knows more: what the leaders that are known say next is the answer, and its reason.
                pass
            found |= await self._round(moved, query)
        return found

    async def look_up_times(
        self, timestamps_ms: Mapping[TopicPartition, int], *, timeout_s: float
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after a moment of each partition; None: no record is so young.

        Raises as ``look_up``, and INVALID_REQUEST for a moment before 1970.
        """
        by_time: dict[int, list[TopicPartition]] = {}
        for partition, timestamp_ms in timestamps_ms.items():
            if timestamp_ms < 0:
                raise RegnumError(
                    errors_pb2.ERROR_CODE_INVALID_REQUEST,
                    f"{timestamp_ms} is no moment: give milliseconds since 1970, or use beginning_offsets, end_offsets",
                )
            by_time.setdefault(timestamp_ms, []).append(partition)
        found: dict[TopicPartition, int | None] = {}
        for timestamp_ms, partitions in by_time.items():
            for partition, offset in (await self.look_up(partitions, timestamp_ms, timeout_s=timeout_s)).items():
                found[partition] = None if offset < 0 else offset
        return {partition: found[partition] for partition in timestamps_ms}

    async def _round(
        self, partitions: Iterable[TopicPartition], query: int
    ) -> dict[TopicPartition, OffsetResult | RegnumError]:
        """Ask every leader once, all at a time."""
        view = self._metadata.view
        outcomes: dict[TopicPartition, OffsetResult | RegnumError] = {}
        by_address: dict[Address, list[TopicPartition]] = {}
        terms: dict[TopicPartition, LeaderTerm] = {}
        for partition in partitions:
            term = view.leader_term(*partition)
            address = None if term is None else view.address_of(term.leader)
            if term is None or address is None:
                outcomes[partition] = RegnumError(
                    errors_pb2.ERROR_CODE_LEADER_NOT_AVAILABLE,
                    f"{partition.topic}/{partition.partition} has no leader now; see `regnum topics describe`",
                )
            else:
                terms[partition] = term
                by_address.setdefault(address, []).append(partition)
        asking = [self._ask(address, asked, terms, query) for address, asked in by_address.items()]
        for answered in await together("list-offsets", *asking):
            outcomes |= answered
        return outcomes

    async def _ask(
        self,
        address: Address,
        asked: Sequence[TopicPartition],
        terms: Mapping[TopicPartition, LeaderTerm],
        query: int,
    ) -> dict[TopicPartition, OffsetResult | RegnumError]:
        """Ask one leader for all its partitions."""
        request = ListOffsetsRequest(
            header=self._header,
            queries=[_query_of(one, query) for one in asked],
        )
        try:
            answer = await call(self._connections.log(address).ListOffsets, request, timeout_s=self._request_timeout_s)
        except RegnumError as error:
            self._metadata.suspect(address)
            return dict.fromkeys(asked, error)
        outcomes: dict[TopicPartition, OffsetResult | RegnumError] = {}
        answered = list(zip(asked, answer.results, strict=True))
        self._metadata.take_leaders(hints_of((one, terms[one], result) for one, result in answered))
        for partition, result in answered:
            if result.error_code == errors_pb2.ERROR_CODE_NONE:
                outcomes[partition] = result
            else:
                where = f"{partition.topic}/{partition.partition}"
                outcomes[partition] = RegnumError(result.error_code, f"{where}: {result.error_message}")
        return outcomes


def _record_of(result: OffsetResult) -> OffsetAndTimestamp | None:
    if result.offset < 0:
        return None
    return OffsetAndTimestamp(result.offset, result.timestamp_ms if result.HasField("timestamp_ms") else None)


def _query_of(partition: TopicPartition, query: int) -> OffsetQuery:
    asked = OffsetQuery(topic=partition.topic, partition=partition.partition)
    if query == FIRST:
        asked.earliest.CopyFrom(EarliestOffset())
    elif query == HIGH_WATERMARK:
        asked.latest.CopyFrom(LatestOffset())
    elif query == MAX_TIMESTAMP:
        asked.max_timestamp.CopyFrom(MaxTimestampOffset())
    else:
        moment = Timestamp()
        moment.FromMilliseconds(query)
        asked.at_or_after.CopyFrom(moment)
    return asked
