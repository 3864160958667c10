"""Which replica of a restored partition may lead without anybody's word: only the newest log that there can be. Pure.

Goals
    After a restore from a backup that may be hours old, no acknowledged record is lost, and whatever cannot be proved
    is left to a person, with the reason.

Constraints (safety rules S10 and S15)
    - The members of the backup's ISR mean nothing: since then others may have taken their place.
    - The assignment may have changed as well. Then the newest log is at a broker that the backup does not assign; so
      all brokers that can be known of say everything that they have, and a newer log outside the assignment holds the
      partition up.
    - A log whose id is not the one of the backup may have lost its end (a loss of power, another disk). What was
      acknowledged since survives the loss of min.insync.replicas - 1 replicas' ends, and not of more; a replica that
      was moved away, or came, counts too. What was acknowledged before it is where ISR and ELR were then: with fewer
      members than min.insync.replicas, as others had lost theirs before the backup.

Algorithm (``choose``)
    Every assigned replica has reported a log that is there; nobody else's log, and nobody else's knowledge of a leader
    epoch, is above all of theirs; fewer than min.insync.replicas of all logs are under another id than the backup
    knows; a member of the backup's ISR or ELR has the log that the backup records.
    Then the one with the highest epoch in its last record, and of these the longest, leads: every leader of an epoch
    had all that was acknowledged before it, and two logs with the same last epoch come from the same leader.

Example: the backup assigns [1, 2, 3] with ISR [1, 2]. 1 ends at 90 in epoch 4, 2 at 90 in 4, 3 at 120 in 6: 3 leads.
Had 3 been replaced by 4 since, 3 would report nothing, and a person decides. Had 1 been replaced by 4 and kept its
files, 4 reports 120 in epoch 6 and is not assigned: nobody leads until a person assigns the partition to it or gives
its end up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regnum_model.ids import NO_EPOCH, BrokerId, LogId

from regnum_election.recovery.decisions import Answer, NoLog, ReplicaLog, is_sound


@dataclass(frozen=True, slots=True)
class Withheld:
    """Nobody leads by itself."""

    reason: str
    """Why, for people."""


def choose(
    replicas: Sequence[BrokerId],
    answers: Mapping[BrokerId, Answer],
    known: Mapping[BrokerId, frozenset[LogId]],
    *,
    holders: Mapping[BrokerId, LogId],
    min_insync: int,
) -> BrokerId | Withheld:
    """The replica to lead, or why it is for a person.

    Args:
        replicas: assignment.
        answers: of every live broker that has a log of it, or may have one that cannot be read; an assigned broker that
            is not among them has none, or has not reported.
        known: logs of each broker when the backup was taken.
        holders: logs of the members of ISR and ELR in the backup; empty: it records none, as nothing was acknowledged.
        min_insync: effective min.insync.replicas of the partition.
    """
    told = [one for id in replicas if isinstance(one := answers.get(id), ReplicaLog) and one.present and is_sound(one)]
    best = max(map(position, told), default=(NO_EPOCH, 0))
    heard = max((log.current_epoch for log in told), default=NO_EPOCH)
    # Before what the assigned ones lack: where a partition went is what a person has to know first.
    for id, answer in answers.items():
        if id not in replicas and (reason := _above(id, answer, best, heard)):
            return Withheld(reason)
    logs = _assigned(replicas, answers)
    if isinstance(logs, Withheld):
        return logs
    present = {id: one for id, one in answers.items() if isinstance(one, ReplicaLog) and one.present}
    if holders and not any(id in present and present[id].log_id == log for id, log in holders.items()):
        return Withheld(
            f"only brokers {sorted(holders)} surely had all that was acknowledged before the backup, and their logs "
            "are other ones than then"
        )
    changed = sorted(id for id, log in present.items() if log.log_id not in known.get(id, frozenset()))
    if len(changed) >= min_insync:
        return Withheld(
            f"the logs of brokers {changed} are other ones than in the backup: their ends may be lost, and "
            f"min.insync.replicas is {min_insync}"
        )
    return next(id for id in replicas if position(logs[id]) == best)


def _assigned(
    replicas: Sequence[BrokerId], answers: Mapping[BrokerId, Answer]
) -> dict[BrokerId, ReplicaLog] | Withheld:
    """Logs of all assigned replicas, or whose is missing."""
    logs: dict[BrokerId, ReplicaLog] = {}
    for id in replicas:
        answer = answers.get(id)
        if isinstance(answer, NoLog):
            return Withheld(f"broker {id} does not say what its log holds: {answer.message}")
        if answer is None or not answer.present:
            return Withheld(f"broker {id} has no log of it, and may have had the newest records")
        if not is_sound(answer):
            return Withheld(f"what broker {id} says of its log contradicts itself")
        logs[id] = answer
    return logs


def _above(id: BrokerId, answer: Answer, best: tuple[int, int], heard: int) -> str:
    """Why the log of a broker that is not assigned holds the partition up; empty: it does not."""
    if isinstance(answer, NoLog):
        return f"broker {id}, which is not assigned to it, has a log that cannot be read: {answer.message}"
    if not answer.present or (is_sound(answer) and position(answer) <= best and answer.current_epoch <= heard):
        return ""
    return (
        f"broker {id}, which is not assigned to it, has a newer log (to {answer.log_end_offset}, last leader epoch "
        f"{answer.last_written_epoch}, knows epoch {answer.current_epoch}) than every assigned one: it was reassigned "
        "after the backup; give it back with `regnum partitions reassign --to`"
    )


def position(log: ReplicaLog) -> tuple[int, int]:
    """How new a log is: leader epoch of its last record, then its end."""
    return log.last_written_epoch, log.log_end_offset
