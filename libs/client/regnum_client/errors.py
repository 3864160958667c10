"""What the SDK raises. All are RegnumError: code, message that says what to do next, exit status for the command.

RegnumError                  what a broker or the controller answered
├── BootstrapMissingError    no address to begin with
├── NoControllerError        no election process answers as the controller
├── ClientClosedError        used before start() or after close()
├── BackgroundTaskError      a background task of the client ended: it cannot go on
├── BufferFullError          no room in the producer's buffer in time
├── ThrottlingQuotaExceededError  a quota refuses a change of topics for now
├── DeliveryTimeoutError     not acknowledged in time; the outcome is unknown if it was sent
├── SequenceBrokenError      acknowledged records are missing, or a batch before this one failed; not sent again
├── OffsetOutOfRangeError    the offset is no longer, or not yet, in the log
├── LogTruncationError       records that were read are no longer in the log
├── NoOffsetForPartitionError  a group has committed nothing there, and was not told where to begin
├── CommitFailedError        the group did not take offsets: the partitions may be another member's
├── MaxPollIntervalExceededError  the application was away for too long: its partitions went to others
├── UnreadableBatchError     a stored batch cannot be decoded
└── RecordDeserializationError  the application's own deserializer raised for a record
"""

from collections.abc import Mapping
from dataclasses import replace

from regnum.types.v1 import errors_pb2
from regnum_service.errors import ErrorTraits, ExitStatus, RegnumError

from regnum_client.records import TopicPartition


class BootstrapMissingError(RegnumError):
    """Nobody said where the cluster is, or what was said is no address."""

    def __init__(
        self, message: str, *, malformed: bool = False, nowhere: bool = False, unreadable: bool = False
    ) -> None:
        """Only assigns.

        Args:
            message: what is wrong and what to do next.
            malformed: what was said is no address.
            nowhere: nothing was said at all, and no cluster is known; otherwise one is, and does not run.
            unreadable: where it is stands in a profile that cannot be read.
        """
        code = errors_pb2.ERROR_CODE_INVALID_REQUEST if malformed else errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE
        super().__init__(code, message)
        self._exit_status = (
            ExitStatus.NOT_FOUND if nowhere else ExitStatus.FAILED if unreadable else super().traits.exit_status
        )

    @property
    def traits(self) -> ErrorTraits:
        """Those of the code. No broker was asked where none is known: then nothing is unavailable, it is not there."""
        return replace(super().traits, exit_status=self._exit_status)


class NoControllerError(RegnumError):
    """No election process answered as the controller in time; brokers and clients go on meanwhile.

    Its code is that of the last failure: with some of them what was asked may have been done all the same.

    >>> try:
    ...     answered = admin.describe_health().controller > 0
    ... except NoControllerError as error:
    ...     print(error.message)
    ...     answered = False
    >>> answered
    True
    """

    def __init__(self, last: RegnumError, *, known: str = "", facts: Mapping[str, str] | None = None) -> None:
        """Only assigns.

        Args:
            last: why the last call failed.
            known: who was believed to be the controller, in words; empty: nobody.
            facts: the same for programs.
        """
        who = f" (last known: {known})" if known else " (the brokers know of none)"
        unknown = "; what became of the last call is not known: look before repeating it"
        super().__init__(
            last.code,
            f"no controller answers{who}; brokers and clients go on; start an election process, or see its log"
            + (unknown if last.code == errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT else ""),
            metadata={**last.metadata, **(facts or {}), "last_error": last.message},
            retry_after_ms=last.retry_after_ms,
        )


class ClientClosedError(RegnumError):
    """The client is not open.

    >>> consumer = regnum_client.sync.Consumer(bootstrap)
    >>> try:
    ...     consumer.read()
    ... except ClientClosedError as error:
    ...     print(error.message)
    the consumer is not open; use it inside `with`, or between start() and close()
    """

    def __init__(self, what: str, *, opened_by: str = "async with") -> None:
        super().__init__(
            errors_pb2.ERROR_CODE_INVALID_REQUEST,
            f"the {what} is not open; use it inside `{opened_by}`, or between start() and close()",
        )


class BackgroundTaskError(RegnumError):
    """A background task of the client ended that was to go on: the client cannot, and every call raises this.

    Something cancelled the task, which asyncio.run does with every task of the loop when its main coroutine returns, or
    it failed, which is a defect of the client. Close the client and open another one. A record that was not
    acknowledged may be in the log all the same.

    >>> def what_to_do(error: BackgroundTaskError) -> str:
    ...     return f"close this client, {error.part} is missing in it"
    >>> what_to_do(BackgroundTaskError("producer", "producer-sender", None))
    'close this client, producer-sender is missing in it'
    """

    part: str
    """Name of the task."""

    def __init__(self, client: str, part: str, error: BaseException | None) -> None:
        """Only assigns.

        Args:
            client: what cannot go on.
            part: name of the task.
            error: what it failed with; None: it was cancelled.
        """
        why = f"failed: {error!r}" if error is not None else "was cancelled from outside (asyncio.run at its end does)"
        super().__init__(
            errors_pb2.ERROR_CODE_UNKNOWN_SERVER_ERROR,
            f"the {client} cannot go on: its background task {part!r} {why}; close it and open another one. What was"
            " under way may have been done",
        )
        self.part = part


class BufferFullError(RegnumError):
    """The producer's buffer stayed full.

    >>> async def send_or_drop(producer: Producer, value: bytes) -> bool:
    ...     try:
    ...         await producer.send("greetings", value)
    ...     except BufferFullError:
    ...         return False
    ...     return True
    """

    def __init__(self, *, buffer_bytes: int, waited_s: float, last: str = "") -> None:
        """Only assigns.

        Args:
            buffer_bytes: size of the buffer.
            waited_s: how long there was no room.
            last: which partition's records wait, and the last answer to them; empty: nothing has gone wrong.
        """
        because = f" ({last})" if last else ""
        super().__init__(
            errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
            f"the buffer ({buffer_bytes} bytes) stayed full for {waited_s:g} s: the brokers take records more slowly "
            f"than they are sent, or not at all{because}; see `regnum status`, send less, or raise buffer_bytes or "
            "buffer_wait_s (--timeout of `regnum produce`)",
        )


class ThrottlingQuotaExceededError(RegnumError):
    """A quota refused a change for now; nothing was done. ``retry_after_ms`` is the wait that is left.

    >>> try:
    ...     admin.create_topic("reports", retry_on_quota_violation=False)
    ... except ThrottlingQuotaExceededError as error:
    ...     print("try again in", error.throttle_time_ms / 1000, "s")
    CreatedTopic(name='reports', ...)
    """

    throttle_time_ms: int
    """Milliseconds to wait before the next try; 0: the wait is over by now."""

    def __init__(self, topic: str, *, verb: str, throttle_time_ms: int) -> None:
        super().__init__(
            errors_pb2.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED,
            f"topic {topic!r} was not {verb}: the quota of changes is used up. Try again in "
            f"{throttle_time_ms / 1000:.1f} s, allow more time (timeout_s; --wait of `regnum topics`), or raise the "
            "quota (`regnum quotas describe`, `regnum quotas set`)",
            metadata={"topic": topic, "throttle_time_ms": str(throttle_time_ms)},
            retry_after_ms=throttle_time_ms,
        )
        self.throttle_time_ms = throttle_time_ms


class DeliveryTimeoutError(RegnumError):
    """A record was not acknowledged in time.

    >>> error = DeliveryTimeoutError(TopicPartition("orders", 0), timeout_s=120, maybe_written=True, last="")
    >>> "look whether it is in the log" if error.maybe_written else "send it again"
    'look whether it is in the log'
    """

    maybe_written: bool
    """It was sent, and may be in the log or get there yet."""

    def __init__(self, partition: TopicPartition, *, timeout_s: float, maybe_written: bool, last: str) -> None:
        outcome = "it may be in the log all the same" if maybe_written else "it was not written"
        because = f"; the last answer was: {last}" if last else ""
        super().__init__(
            errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
            f"no acknowledgement from {partition.topic}/{partition.partition} within {timeout_s:g} s "
            f"({outcome}){because}. See `regnum topics describe {partition.topic}` for its leader, or raise "
            "delivery_timeout_s (--timeout of `regnum produce`)",
        )
        self.maybe_written = maybe_written


class SequenceBrokenError(RegnumError):
    """The broker and the producer disagree about what is in the log, so the record was not sent again.

    >>> error = SequenceBrokenError(TopicPartition("orders", 0), maybe_written=False, because="it expired")
    >>> "look whether it is in the log" if error.maybe_written else "send it again"
    'send it again'
    """

    maybe_written: bool
    """It was sent, and may be in the log."""

    def __init__(self, partition: TopicPartition, *, maybe_written: bool, because: str) -> None:
        outcome = "This record may be in the log" if maybe_written else "This record was not written"
        super().__init__(
            errors_pb2.ERROR_CODE_OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"the sequence of records to {partition.topic}/{partition.partition} broke: {because}. {outcome}; "
            "read the partition's end before sending it again. Later records go under a new producer id",
        )
        self.maybe_written = maybe_written


class OffsetOutOfRangeError(RegnumError):
    """The consumer's offset is not in the log.

    >>> with regnum_client.sync.Consumer(bootstrap) as consumer:
    ...     (partition,) = consumer.assign("orders", start=1_000_000)
    ...     try:
    ...         consumer.read(timeout_s=60.0)
    ...     except OffsetOutOfRangeError as error:
    ...         consumer.seek_to_end(error.partition)
    ...         print(error.offset, consumer.position(partition))
    1000000 2
    """

    partition: TopicPartition
    """Where."""
    offset: int
    """The offset that was asked for."""

    def __init__(self, partition: TopicPartition, *, offset: int, answer: str) -> None:
        super().__init__(
            errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE,
            f"offset {offset} of {partition.topic}/{partition.partition} is not in the log"
            f"{f' ({answer})' if answer else ''}; seek() to one that is, or choose ResetPolicy.EARLIEST or LATEST "
            "(--from OFFSET, earliest or latest of `regnum consume`)",
        )
        self.partition = partition
        self.offset = offset


class NoOffsetForPartitionError(RegnumError):
    """A group has committed nothing in a partition, and ``auto_offset_reset`` says to fail.

    >>> def begin(consumer: Consumer, error: NoOffsetForPartitionError) -> None:
    ...     consumer.seek(error.partition, 0)
    """

    partition: TopicPartition
    """Where."""

    def __init__(self, partition: TopicPartition, *, group_id: str) -> None:
        super().__init__(
            errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE,
            f"group {group_id!r} has committed no offset of {partition.topic}/{partition.partition}; seek() to where "
            "it begins, or choose auto_offset_reset EARLIEST or LATEST",
        )
        self.partition = partition


class CommitFailedError(RegnumError):
    """Nothing was committed, and sending it again is of no use: go on reading.

    >>> async def process(consumer: Consumer) -> None:
    ...     async for record in consumer:
    ...         try:
    ...             await consumer.commit()
    ...         except CommitFailedError:
    ...             pass  # what was processed since the last commit comes again, here or at another member
    """

    def __init__(self, because: str) -> None:
        super().__init__(
            errors_pb2.ERROR_CODE_ILLEGAL_GENERATION,
            f"the offsets were not committed: {because}. What was processed since the last commit comes again, here or "
            "at another member; go on reading",
        )


class MaxPollIntervalExceededError(RegnumError):
    """The application asked for no record for ``max_poll_interval_s``, and left the group. Raised once.

    >>> async def process(consumer: Consumer) -> None:
    ...     while True:
    ...         try:
    ...             await anext(consumer)
    ...         except MaxPollIntervalExceededError:
    ...             pass  # the next call joins the group again
    """

    def __init__(self, *, group_id: str, away_s: float, limit_s: float) -> None:
        super().__init__(
            errors_pb2.ERROR_CODE_UNKNOWN_MEMBER_ID,
            f"no record was asked for in {away_s:.0f} s, and max_poll_interval_s is {limit_s:g}: this consumer left "
            f"group {group_id!r}, and its partitions went to other members. Read on to join again; take fewer records "
            "at a time, or allow more time",
        )


class LogTruncationError(RegnumError):
    """Records that the consumer handed out are not in the log any more: an unclean election lost them (KIP-320).

    Other records may stand at their offsets by now. ``seek`` to ``divergent_offset`` reads everything that came
    instead; with ``leader_epoch`` it is noticed when even that is too far.

    >>> def go_on(consumer: Consumer, error: LogTruncationError) -> None:
    ...     undo_from(error.divergent_offset)
    ...     consumer.seek(error.partition, error.divergent_offset, leader_epoch=error.leader_epoch)
    """

    partition: TopicPartition
    """Where."""
    offset: int
    """Where the consumer stood."""
    divergent_offset: int
    """First offset whose record is gone: those before it are still there."""
    leader_epoch: int | None
    """Leader epoch of the record before ``divergent_offset``, as it was read; None: not known."""
    finding: str
    """What was found, without what to do about it."""

    def __init__(
        self, partition: TopicPartition, *, offset: int, divergent_offset: int, leader_epoch: int | None
    ) -> None:
        self.finding = (
            f"records {divergent_offset} to {offset - 1} of {partition.topic}/{partition.partition} were read and are"
            " not in the log any more: a leader was elected that did not have them (unclean.leader.election.enable)"
        )
        super().__init__(
            errors_pb2.ERROR_CODE_OFFSET_OUT_OF_RANGE,
            f"{self.finding}; seek() to {divergent_offset} to read what is there instead, or choose"
            f" ResetPolicy.EARLIEST or LATEST, which do so (-p {partition.partition} --from {divergent_offset} of"
            " `regnum consume`)",
        )
        self.partition = partition
        self.offset = offset
        self.divergent_offset = divergent_offset
        self.leader_epoch = leader_epoch


class UnreadableBatchError(RegnumError):
    """A stored batch cannot be decoded. The consumer stands before it; ``seek`` to ``next_offset`` leaves it out.

    ``ConsumerSettings(skip_unreadable=True)`` leaves out every such batch.

    >>> def skip(consumer: Consumer, error: UnreadableBatchError) -> None:
    ...     if error.next_offset is None:
    ...         raise error
    ...     consumer.seek(error.partition, error.next_offset)
    """

    partition: TopicPartition
    """Where."""
    next_offset: int | None
    """Offset after the bad batch; None when its extent is not known."""

    def __init__(self, partition: TopicPartition, *, offset: int, next_offset: int | None, reason: str) -> None:
        skip = (
            "; see the broker's log for what is wrong with its disk"
            if next_offset is None
            else f"; seek() to {next_offset} to leave it out, or ConsumerSettings(skip_unreadable=True) for all such"
            " (`regnum consume --skip-unreadable`)"
        )
        super().__init__(
            errors_pb2.ERROR_CODE_CORRUPT_MESSAGE,
            f"the batch at offset {offset} of {partition.topic}/{partition.partition} cannot be read: {reason}{skip}",
        )
        self.partition = partition
        self.next_offset = next_offset


class RecordDeserializationError(RegnumError):
    """A deserializer of the settings raised for a record (Kafka: KIP-334). Its own error is the cause.

    The consumer stands before the record; ``seek`` to ``next_offset`` leaves it out.

    >>> with regnum_client.sync.Consumer(bootstrap, settings=ConsumerSettings(value_deserializer=int)) as consumer:
    ...     (partition,) = consumer.assign("orders")
    ...     try:
    ...         consumer.read(timeout_s=60.0)
    ...     except RecordDeserializationError as error:
    ...         consumer.seek(error.partition, error.next_offset)
    ...         print(error.offset, consumer.position(partition))
    0 1
    """

    partition: TopicPartition
    """Where."""
    offset: int
    """Of the record."""
    next_offset: int
    """Offset after it."""

    def __init__(self, partition: TopicPartition, *, offset: int, what: str, reason: str) -> None:
        """Only assigns.

        Args:
            partition: where.
            offset: of the record.
            what: ``key`` or ``value``.
            reason: what the deserializer raised.
        """
        super().__init__(
            errors_pb2.ERROR_CODE_INVALID_RECORD,
            f"the {what} at offset {offset} of {partition.topic}/{partition.partition} cannot be read by "
            f"{what}_deserializer: {reason}; seek() to {offset + 1} to leave it out",
        )
        self.partition = partition
        self.offset = offset
        self.next_offset = offset + 1
