"""Deletes records at the beginning of partitions, at their leaders."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from regnum.broker.v1.log_pb2 import (
    AllCommitted,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResult,
)
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.ids import NO_LEADER
from regnum_model.nodes import Address
from regnum_service.errors import RegnumError

from regnum_client.admin.session import AdminSession
from regnum_client.cluster.connections import call
from regnum_client.cluster.pace import retry_delay_ms
from regnum_client.errors import BackgroundTaskError
from regnum_client.records import TopicPartition
from regnum_client.tasks import together

ANSWER_S: Final = 2.0
"""Time for an answer beyond the wait that the leader was told of."""

ATTEMPT_S_MAX: Final = 10.0
"""Longest wait of one call: a leader that has died meanwhile is looked for again then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedRecords:
    """What was, or would be, deleted of a partition.

    >>> here = TopicPartition("orders", 0)
    >>> admin.delete_records({here: 1}, validate_only=True)[here].new_log_start_offset
    1
    """

    log_start_offset: int
    """First offset of the log before."""
    new_log_start_offset: int
    """First offset of the leader's log afterwards."""
    low_watermark: int
    """No record before it is left on the leader, nor on any replica that is in sync or fetches from it."""


class RecordAdmin(AdminSession):
    """Deletes records."""

    async def delete_records(
        self, until: Mapping[TopicPartition, int | None], *, validate_only: bool = False, timeout_s: float | None = None
    ) -> dict[TopicPartition, DeletedRecords | RegnumError]:
        """Delete the committed records before an offset of each partition, for good.

        One answer for each partition. Without an error the records are gone from every replica that is in sync.
        REQUEST_TIMED_OUT says that the leader has deleted and others have not yet. A call with the same offsets does no
        harm; with None it deletes what was committed since, too.

        Args:
            until: the first offset that stays; None: all that is committed when the leader is first asked goes, and
                nothing later, however often this call has to ask.
            validate_only: check, and say what would go; nothing is deleted.
            timeout_s: how long to try; that of this client when None.
        """
        metadata, began_s = self._open(), self._clock.monotonic()
        left_s = self._timeout_s if timeout_s is None else timeout_s
        until_s = began_s + left_s
        wanted = {TopicPartition(*partition): offset for partition, offset in until.items()}
        answers: dict[TopicPartition, DeletedRecords | RegnumError] = {}
        # What is committed grows, so an answer that was lost must not have it looked up again: a check says up to
        # where, in which topic, and where the log began.
        topic_ids: dict[TopicPartition, str] = {}
        checked: dict[TopicPartition, DeletedRecords] = {}
        missing = wanted
        while missing:
            unchecked = {one: offset for one, offset in missing.items() if one not in checked}
            found = await self._ask_leaders(unchecked, topic_ids, validate_only=True, left_s=left_s)
            answers |= found
            checked |= {one: answer for one, answer in found.items() if isinstance(answer, DeletedRecords)}
            if not validate_only:
                ends = {one: checked[one].new_log_start_offset for one in missing if one in checked}
                left_s = until_s - self._clock.monotonic()
                answers |= await self._ask_leaders(ends, topic_ids, validate_only=False, left_s=left_s)
            missing = {one: offset for one, offset in wanted.items() if _may_be_repeated(answers.get(one))}
            now_s = self._clock.monotonic()
            left_s = until_s - now_s
            if not missing or left_s <= 0:
                break
            await self._clock.sleep(retry_delay_ms((now_s - began_s) * 1000, self._chance.random()) / 1000)
            try:
                await metadata.newer_than(now_s, timeout_s=left_s)
            except BackgroundTaskError:
                raise
            except RegnumError:
                # The time is up; what the leaders said last says more.
                break
        return {one: _since_check(answers[one], checked.get(one)) for one in wanted}

    async def _ask_leaders(
        self,
        missing: Mapping[TopicPartition, int | None],
        topic_ids: dict[TopicPartition, str],
        *,
        validate_only: bool,
        left_s: float,
    ) -> dict[TopicPartition, DeletedRecords | RegnumError]:
        """Ask every leader once, all at a time; a check fills ``topic_ids`` in."""
        if not missing:
            return {}
        metadata, left_s = self._open(), max(0.1, left_s)
        try:
            known = await metadata.topics(list(dict.fromkeys(one.topic for one in missing)), timeout_s=left_s)
        except RegnumError as error:
            return dict.fromkeys(missing, error)
        answers: dict[TopicPartition, DeletedRecords | RegnumError] = {}
        leaders: dict[Address, dict[TopicPartition, DeleteRecordsPartition]] = {}
        for one, offset in missing.items():
            topic = known.get(one.topic)
            if topic is None or one.partition not in topic.partitions:
                answers[one] = _unknown(one)
                continue
            leader = topic.partitions[one.partition].leader
            address = None if leader == NO_LEADER else metadata.view.address_of(leader)
            if address is None:
                answers[one] = _leaderless(one)
                continue
            # The id: a topic that was created again meanwhile keeps its records.
            if validate_only:
                topic_ids[one] = topic.topic_id
            asked = DeleteRecordsPartition(topic=one.topic, topic_id=topic_ids[one], partition=one.partition)
            if offset is None:
                asked.all_committed.CopyFrom(AllCommitted())
            else:
                asked.before_offset = offset
            leaders.setdefault(address, {})[one] = asked
        asking = [
            self._delete_at(address, asked, validate_only=validate_only, wait_s=min(left_s, ATTEMPT_S_MAX))
            for address, asked in leaders.items()
        ]
        for answered in await together("delete-records", *asking):
            answers |= answered
        return answers

    async def _delete_at(
        self,
        address: Address,
        asked: Mapping[TopicPartition, DeleteRecordsPartition],
        *,
        validate_only: bool,
        wait_s: float,
    ) -> dict[TopicPartition, DeletedRecords | RegnumError]:
        request = DeleteRecordsRequest(
            header=RequestHeader(client_id=self._client_id),
            partitions=asked.values(),
            timeout_ms=max(1, int(wait_s * 1000)),
            validate_only=validate_only,
        )
        try:
            answer = await call(self._connections.log(address).DeleteRecords, request, timeout_s=wait_s + ANSWER_S)
        except RegnumError as error:
            self._open().suspect(address)
            return dict.fromkeys(asked, error)
        return {one: _from_wire(one, result) for one, result in zip(asked, answer.results, strict=True)}


def _from_wire(one: TopicPartition, result: DeleteRecordsResult) -> DeletedRecords | RegnumError:
    if result.error_code != errors_pb2.ERROR_CODE_NONE:
        return RegnumError(result.error_code, f"{one.topic}/{one.partition}: {result.error_message}")
    return DeletedRecords(
        log_start_offset=result.log_start_offset,
        new_log_start_offset=result.new_log_start_offset,
        low_watermark=result.low_watermark,
    )


def _since_check(answer: DeletedRecords | RegnumError, checked: DeletedRecords | None) -> DeletedRecords | RegnumError:
    """With all that went by this call: the last answer of several does not know what went before."""
    if checked is None or isinstance(answer, RegnumError):
        return answer
    return replace(answer, log_start_offset=checked.log_start_offset)


def _may_be_repeated(answer: DeletedRecords | RegnumError | None) -> bool:
    """Whether asking again may help. A topic that nobody knows is most likely a wrong name."""
    if not isinstance(answer, RegnumError) or answer.code == errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION:
        return False
    return answer.traits.retriable


def _unknown(one: TopicPartition) -> RegnumError:
    return RegnumError(
        errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
        f"{one.topic}/{one.partition} does not exist; see `regnum topics describe {one.topic}`",
    )


def _leaderless(one: TopicPartition) -> RegnumError:
    return RegnumError(
        errors_pb2.ERROR_CODE_LEADER_NOT_AVAILABLE,
        f"{one.topic}/{one.partition} has no leader now; see `regnum topics describe {one.topic}`",
    )
