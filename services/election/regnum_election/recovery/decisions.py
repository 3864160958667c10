"""Which replica leads a partition again that nobody may lead, and what that costs. Pure.

Goals
    A partition that no rule can give a leader any more gets one when a person accepts the loss, and the loss is as
    small as what answers allows; before that the person reads what it would be.

Constraints (safety rules S10 and S14)
    - Only for a partition that gets no leader without loss; the caller sees to that.
    - The new leader epoch is above every epoch that the store, the controller or an answering replica knows. Where the
      store's own is not known it is far above: a log that does not answer now, or is gone, may have known more, and
      two leaders of one epoch would write different records at one offset.
    - What nobody knows is said to be unknown, and never taken for nothing.

Algorithm (KIP-966, unclean recovery)
    Of the replicas that answer with a log that can be read, the one with the highest leader epoch in its last record,
    and among these the longest log. Two logs with the same last epoch come from the same leader, so the shorter is the
    beginning of the longer. Among equals: one that leads still without the store knowing it, the one that knows more to
    be committed, one that is not being filled by a reassignment, one that is not shutting down, the first of the
    assignment. Where the best is one that is being filled, and an older replica is live and did not say what it has,
    that is said (``unheard``): it may well have more, and nobody but a person gives it up.

Example: assignment [1, 2, 3]; 1 does not answer; 2 ends at 90 with last epoch 4, 3 at 70 with last epoch 5. Chosen is
3, though 2 is longer: what 2 has from epoch 4 may have been replaced. Its records from 70 on are given up, and what 1
had is not known.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from regnum.types.v1 import errors_pb2
from regnum.types.v1.errors_pb2 import ErrorCode
from regnum_model.ids import NO_EPOCH, BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, LogId, TopicId
from regnum_model.nodes import LeaderAndIsr, Membership

EPOCH_MAX: Final = 2**31 - 1
"""Highest leader epoch that the state and the wire can carry."""

UNKNOWN_EPOCHS: Final = 1_000
"""Leader epochs that are left out where the store's own is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLog:
    """What a live replica answered."""

    broker_epoch: BrokerEpoch
    """Broker epoch of the life that answered."""
    log_id: LogId
    """Log that it means."""
    present: bool
    """Whether there is such a replica; without one it has no records."""
    last_written_epoch: LeaderEpoch
    """Leader epoch of its last record; NO_EPOCH for an empty log."""
    current_epoch: LeaderEpoch
    """Highest leader epoch that it has heard of."""
    log_start_offset: int
    """First offset."""
    high_watermark: int
    """High watermark, as far as it knows."""
    log_end_offset: int
    """Offset after its last record."""
    leading: bool
    """Whether it leads, without the store knowing it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoLog:
    """Why nothing is known of a replica."""

    code: ErrorCode.ValueType
    message: str
    """What is wrong."""


Answer = ReplicaLog | NoLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """What can be had back of a partition."""

    answers: Mapping[BrokerId, Answer]
    """Answer of every assigned replica, in the order of the assignment."""
    chosen: BrokerId | None
    """Replica to elect; None: none answered."""
    unknown: tuple[BrokerId, ...]
    """Replicas whose records, as recorded, nobody knows: silent ones, and logs that are other ones than recorded."""
    unheard: tuple[BrokerId, ...]
    """Live replicas that did not say what they have, where the chosen one is only being filled."""
    lost_from_offset: int
    """Log end of the chosen replica: what was after it is given up."""
    known_end_offset: int
    """Highest log end, or high watermark, that any replica answered."""
    may_be_lost: str
    """The same in words."""


def is_sound(log: ReplicaLog) -> bool:
    """Whether an answer can be true."""
    return (
        -1 <= log.last_written_epoch <= EPOCH_MAX
        and -1 <= log.current_epoch <= EPOCH_MAX
        and 0 <= log.log_start_offset <= log.log_end_offset
        and log.high_watermark >= 0
    )


def is_missing(answer: Answer) -> bool:
    """Whether a broker says that it has no such replica: it makes an empty one when it is elected all the same."""
    return isinstance(answer, ReplicaLog) and not answer.present


def assess(
    replicas: Sequence[BrokerId],
    state: LeaderAndIsr | None,
    answers: Mapping[BrokerId, Answer],
    *,
    leaving: Collection[BrokerId] = (),
    adding: Collection[BrokerId] = (),
) -> Assessment:
    """Choose among the answers, and say what the choice costs.

    Args:
        replicas: assignment.
        state: what is recorded of the partition, as far as it can be read; None: nothing.
        answers: what each assigned replica answered.
        leaving: brokers that are shutting down.
        adding: replicas that a reassignment brings, and that are being filled.
    """
    ordered = {id: answers[id] for id in replicas}
    logs = {id: answer for id, answer in ordered.items() if isinstance(answer, ReplicaLog)}
    chosen = max(logs, key=lambda id: _rank(id, logs[id], replicas, leaving, adding), default=None)
    unknown = tuple(id for id in _holders(replicas, state) if _is_unknown(id, state, ordered))
    known_end = max((max(log.log_end_offset, log.high_watermark) for log in logs.values()), default=0)
    unheard = tuple(id for id, answer in ordered.items() if id not in adding and _is_unheard(answer))
    end = 0 if chosen is None else logs[chosen].log_end_offset
    return Assessment(
        answers=ordered,
        chosen=chosen,
        unknown=unknown,
        unheard=unheard if chosen in adding else (),
        lost_from_offset=end,
        known_end_offset=known_end,
        may_be_lost=_in_words(chosen, logs, unknown, answers=ordered),
    )


def of_this_life(answer: Answer, began: LeaderEpoch) -> Answer:
    """The answer; of a log of a removed partition of the same number, that there is none: it is deleted (S13)."""
    if not isinstance(answer, ReplicaLog) or not NO_EPOCH < answer.current_epoch < began:
        return answer
    return replace(
        answer,
        present=False,
        last_written_epoch=NO_EPOCH,
        log_start_offset=0,
        high_watermark=0,
        log_end_offset=0,
    )


def recovered_epoch(known: LeaderEpoch, answers: Collection[Answer], *, certain: bool) -> LeaderEpoch | None:
    """The leader epoch to elect in; None: there is none left.

    Args:
        known: highest leader epoch that the store or the controller knows; NO_EPOCH: none.
        answers: what the replicas answered.
        certain: whether ``known`` is the highest that there has been.
    """
    heard = [
        epoch
        for answer in answers
        if isinstance(answer, ReplicaLog)
        for epoch in (answer.last_written_epoch, answer.current_epoch)
    ]
    epoch = max(known, *heard, -1) + 1 + (0 if certain else UNKNOWN_EPOCHS)
    return LeaderEpoch(epoch) if epoch <= EPOCH_MAX else None


def highest_written(version: int) -> LeaderEpoch:
    """The highest leader epoch that a state can have, by the version of its node, whatever it says.

    A first state has epoch 0, and each write raises it by one, or by what is left out where the store's own is not
    known: once for the one who elects or removes, and once for the tombstone.
    """
    return LeaderEpoch(version * (UNKNOWN_EPOCHS + 2))


def recovered_state(
    topic_id: TopicId,
    chosen: BrokerId,
    log: ReplicaLog,
    leader_epoch: LeaderEpoch,
    controller_epoch: ControllerEpoch,
) -> LeaderAndIsr:
    """The state in which the chosen replica leads, alone: whoever else has the partition copies it from there."""
    return LeaderAndIsr(
        topic_id=topic_id,
        leader=chosen,
        leader_epoch=leader_epoch,
        isr=(chosen,),
        elr=(),
        members={chosen: Membership(broker_epoch=log.broker_epoch, log_id=log.log_id)},
        controller_epoch=controller_epoch,
    )


def is_recorded(id: BrokerId, log: ReplicaLog, state: LeaderAndIsr | None) -> bool:
    """Whether a log is the one that the state records for that broker."""
    return state is not None and id in state.members and state.members[id].log_id == log.log_id


def _rank(
    id: BrokerId,
    log: ReplicaLog,
    replicas: Sequence[BrokerId],
    leaving: Collection[BrokerId],
    adding: Collection[BrokerId],
) -> tuple[int, int, bool, int, bool, bool, int]:
    return (
        log.last_written_epoch,
        log.log_end_offset,
        log.leading,
        log.high_watermark,
        id not in adding,
        id not in leaving,
        -replicas.index(id),
    )


def _is_unheard(answer: Answer) -> bool:
    """Whether a live broker may have the log and did not say so."""
    gone = (errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR)
    return isinstance(answer, NoLog) and answer.code not in gone


def _holders(replicas: Sequence[BrokerId], state: LeaderAndIsr | None) -> tuple[BrokerId, ...]:
    """Who may have what was acknowledged: the recorded members; all that are assigned where nothing is recorded."""
    return tuple(replicas) if state is None else (*state.isr, *state.elr)


def _is_unknown(id: BrokerId, state: LeaderAndIsr | None, answers: Mapping[BrokerId, Answer]) -> bool:
    answer = answers.get(id)
    if not isinstance(answer, ReplicaLog):
        return True
    if state is None:
        # A replica that is not there may have been, on a disk that was changed.
        return not answer.present
    return not answer.present or not is_recorded(id, answer, state)


def _in_words(
    chosen: BrokerId | None,
    logs: Mapping[BrokerId, ReplicaLog],
    unknown: Collection[BrokerId],
    *,
    answers: Mapping[BrokerId, Answer],
) -> str:
    if chosen is None:
        return "everything: no replica answers with a log that can be read"
    end = logs[chosen].log_end_offset
    losses: list[str] = []
    if logs[chosen].log_start_offset == end:
        losses.append(f"all records: broker {chosen} has none")
    losses += [
        f"records {end} to {log.log_end_offset - 1} of broker {id} (last leader epoch {log.last_written_epoch})"
        for id, log in logs.items()
        if log.log_end_offset > end
    ]
    committed = max((log.high_watermark for log in logs.values()), default=0)
    if committed > end:
        losses.append(f"committed records {end} to {committed - 1}")
    silent = [id for id in unknown if not isinstance(answers.get(id), ReplicaLog)]
    other = [id for id in unknown if id not in silent]
    if silent:
        losses.append(f"what {_brokers(silent)} alone had, from which no log was had: how much is not known")
    if other:
        losses.append(f"what the former {_logs(other)} alone had: how much is not known")
    return "; ".join(losses) or "nothing that an assigned replica knows of"


def _brokers(ids: Sequence[BrokerId]) -> str:
    return f"{'broker' if len(ids) == 1 else 'brokers'} {', '.join(map(str, ids))}"


def _logs(ids: Sequence[BrokerId]) -> str:
    return f"{'log' if len(ids) == 1 else 'logs'} of {_brokers(ids)}"
