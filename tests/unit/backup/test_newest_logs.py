"""After a restore the newest log leads, or nobody: no acknowledged record is lost, whatever was done since."""

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regnum.types.v1 import errors_pb2
from regnum_election.recovery.decisions import Answer, NoLog, ReplicaLog
from regnum_election.recovery.newest_logs import Withheld, choose
from regnum_model.ids import BrokerEpoch, BrokerId, LeaderEpoch, LogId

THREE = (BrokerId(1), BrokerId(2), BrokerId(3))
KNOWN = {BrokerId(id): frozenset({LogId(f"log {id}")}) for id in range(1, 7)}
THREE_HOLD = {id: LogId(f"log {id}") for id in THREE}
SILENT = NoLog(code=errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, message="no answer")


def _log(of: int, epoch: int, end: int, *, heard: int | None = None, log_id: str | None = None) -> ReplicaLog:
    return ReplicaLog(
        broker_epoch=BrokerEpoch(1),
        log_id=LogId(log_id or f"log {of}"),
        present=True,
        last_written_epoch=LeaderEpoch(epoch),
        current_epoch=LeaderEpoch(epoch if heard is None else heard),
        log_start_offset=0,
        high_watermark=0,
        log_end_offset=end,
        leading=False,
    )


def _answers(*logs: ReplicaLog) -> dict[BrokerId, Answer]:
    return {BrokerId(id): one for id, one in enumerate(logs, 1)}


def test_the_latest_epoch_leads_and_of_these_the_longest() -> None:
    assert choose(THREE, _answers(_log(1, 4, 90), _log(2, 4, 90), _log(3, 6, 70)), KNOWN, holders={}, min_insync=2) == 3
    assert choose(THREE, _answers(_log(1, 6, 90), _log(2, 6, 91), _log(3, 6, 70)), KNOWN, holders={}, min_insync=2) == 2


@pytest.mark.parametrize(
    ("third", "word"),
    [
        (None, "no log"),
        (SILENT, "no answer"),
        (replace(_log(3, 4, 1), present=False), "no log"),
        (_log(3, 4, -1), "contr"),
    ],
)
def test_with_one_replica_missing_it_is_for_a_person(third: Answer | None, word: str) -> None:
    answers = _answers(_log(1, 4, 90), _log(2, 4, 90))
    if third is not None:
        answers[BrokerId(3)] = third
    verdict = choose(THREE, answers, KNOWN, holders={}, min_insync=2)
    assert isinstance(verdict, Withheld)
    assert "broker 3" in verdict.reason
    assert word in verdict.reason


@pytest.mark.parametrize("other", [_log(4, 5, 10), _log(4, 4, 91), _log(4, 0, 1, heard=5), SILENT, _log(4, 4, -1)])
def test_a_newer_log_outside_the_assignment_holds_it_up(other: Answer) -> None:
    answers = {**_answers(_log(1, 4, 90), _log(2, 4, 90), _log(3, 4, 90)), BrokerId(4): other}
    verdict = choose(THREE, answers, KNOWN, holders={}, min_insync=2)
    assert isinstance(verdict, Withheld)
    assert "broker 4" in verdict.reason


def test_an_older_log_outside_the_assignment_is_no_obstacle() -> None:
    answers = {**_answers(_log(1, 4, 90), _log(2, 4, 90), _log(3, 4, 90)), BrokerId(4): _log(4, 4, 90)}
    assert choose(THREE, answers, KNOWN, holders={}, min_insync=2) == 1


def test_as_many_changed_logs_as_may_have_lost_what_was_acknowledged_are_for_a_person() -> None:
    logs = [_log(1, 4, 90, log_id="new"), _log(2, 4, 90), _log(3, 4, 90)]
    assert choose(THREE, _answers(*logs), KNOWN, holders={}, min_insync=2) == 1
    logs[1] = _log(2, 4, 90, log_id="new")
    verdict = choose(THREE, _answers(*logs), KNOWN, holders={}, min_insync=2)
    assert isinstance(verdict, Withheld)
    assert "[1, 2]" in verdict.reason
    assert isinstance(
        choose(THREE, _answers(_log(1, 1, 1), _log(2, 1, 1), _log(3, 1, 1)), {}, holders={}, min_insync=2), Withheld
    )


def test_what_was_acknowledged_before_the_backup_is_where_its_isr_was_and_not_where_logs_are_unchanged_since() -> None:
    """2 and 3 lost their ends before the backup, so only 1 was in sync; 1 lost its own afterwards."""
    logs = _answers(_log(1, 4, 80, log_id="new"), _log(2, 4, 90), _log(3, 4, 70))
    verdict = choose(THREE, logs, KNOWN, holders={BrokerId(1): LogId("log 1")}, min_insync=2)
    assert isinstance(verdict, Withheld)
    assert "[1]" in verdict.reason
    both = {BrokerId(1): LogId("log 1"), BrokerId(3): LogId("log 3")}
    assert choose(THREE, logs, KNOWN, holders=both, min_insync=2) == 2


def test_a_partition_that_was_for_a_person_at_the_backup_is_for_a_person_still() -> None:
    """Its only member had come back with another log already: no log has changed since the backup."""
    logs = _answers(_log(1, 4, 80), _log(2, 4, 90), _log(3, 4, 70))
    verdict = choose(THREE, logs, KNOWN, holders={BrokerId(1): LogId("the log before")}, min_insync=2)
    assert isinstance(verdict, Withheld)


def test_changed_logs_outside_the_assignment_count_too() -> None:
    """A replica went to 4 and was back at 3 in the backup; 1 and 4 were in sync since, and lost their ends."""
    logs: dict[BrokerId, Answer] = _answers(_log(1, 6, 90, log_id="new"), _log(2, 6, 90), _log(3, 5, 50))
    logs[BrokerId(4)] = _log(4, 6, 80, log_id="new")
    verdict = choose(THREE, logs, KNOWN, holders={BrokerId(2): LogId("log 2")}, min_insync=2)
    assert isinstance(verdict, Withheld)
    assert "[1, 4]" in verdict.reason


@dataclass
class World:
    """One partition: its brokers' logs as (epoch, record), who is assigned and in sync; what was acknowledged."""

    chance: random.Random
    min_insync: int = 2
    assigned: list[int] = field(default_factory=lambda: [1, 2, 3])
    isr: list[int] = field(default_factory=lambda: [1, 2, 3])
    leader: int = 1
    epoch: int = 0
    logs: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: {1: [], 2: [], 3: []})
    heard: dict[int, int] = field(default_factory=lambda: {1: 0, 2: 0, 3: 0})
    ids: dict[int, str] = field(default_factory=lambda: {id: f"log {id}" for id in range(1, 7)})
    acknowledged: list[tuple[int, int]] = field(default_factory=list)
    is_offline: bool = False

    def step(self) -> None:
        steps = [self.append, self.append, self.append, self.shrink, self.join, self.elect, self.move]
        if not self.is_offline:
            self.chance.choice(steps)()

    def crash(self) -> None:
        """A log loses its end at any time, and has another id; the last one in sync leaves nobody who may lead."""
        id = self.chance.choice(sorted(self.logs))
        self.logs[id] = self.logs[id][: self.chance.randint(0, len(self.logs[id]))]
        self.ids[id] = f"{self.ids[id]}'"
        if self.isr == [id]:
            self.is_offline = True
        elif id in self.isr and not self.is_offline:
            self.isr.remove(id)
            if id == self.leader:
                self.elect()

    def holders(self) -> dict[BrokerId, LogId]:
        """As the state records them."""
        return {BrokerId(id): LogId("gone" if self.is_offline else self.ids[id]) for id in self.isr}

    def append(self) -> None:
        """A record, to some followers; acknowledged where all in sync have it, and they are enough."""
        record = (self.epoch, self.chance.getrandbits(40))
        self.logs[self.leader].append(record)
        reached = {id for id in self.isr if id == self.leader or self.chance.random() < 0.8}
        for id in reached - {self.leader}:
            self.copy(id)
        if reached == set(self.isr) and len(self.isr) >= self.min_insync:
            self.acknowledged = list(self.logs[self.leader])

    def copy(self, id: int) -> None:
        """Follow: what is not the leader's is cut off, the rest fetched."""
        self.logs[id] = list(self.logs[self.leader])
        self.heard[id] = self.heard[self.leader] = self.epoch

    def shrink(self) -> None:
        if len(self.isr) > 1:
            self.isr.remove(self.chance.choice([id for id in self.isr if id != self.leader]))

    def join(self) -> None:
        for id in self.assigned:
            if id not in self.isr and self.chance.random() < 0.5:
                self.copy(id)
                self.isr.append(id)

    def elect(self) -> None:
        self.leader = self.chance.choice(self.isr)
        self.epoch += 1
        self.heard[self.leader] = self.epoch

    def move(self) -> None:
        """A replica goes to another broker, which is in sync before; the old one deletes it, or was away."""
        others = [id for id in range(1, 7) if id not in self.assigned]
        old, new = self.chance.choice(self.assigned), self.chance.choice(others)
        self.copy(new)
        self.assigned[self.assigned.index(old)] = new
        self.isr = [id for id in self.isr if id != old] + [new]
        if old == self.leader:
            self.elect()
        if self.chance.random() < 0.6:
            self.logs.pop(old, None)

    def lose_power(self) -> None:
        """Fewer than min.insync.replicas lose the ends of their logs; a log that lost its end has another id."""
        for id in self.chance.sample(sorted(self.logs), self.min_insync - 1):
            self.logs[id] = self.logs[id][: self.chance.randint(0, len(self.logs[id]))]
            self.ids[id] = f"{self.ids[id]}'"

    def answers(self) -> dict[BrokerId, Answer]:
        return {
            BrokerId(id): _log(
                id, log[-1][0] if log else -1, len(log), heard=max(self.heard[id], 0), log_id=self.ids[id]
            )
            for id, log in self.logs.items()
        }


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32))
def test_whoever_leads_has_every_acknowledged_record_when_all_brokers_have_reported(seed: int) -> None:
    chance = random.Random(seed)
    world = World(chance)
    crashes = chance.choice((0.0, 0.1, 0.3))
    for _ in range(chance.randint(0, 12)):
        world.crash() if chance.random() < crashes else world.step()
    holders = world.holders()
    assigned = tuple(map(BrokerId, world.assigned))
    known = {BrokerId(id): frozenset({LogId(name)}) for id, name in world.ids.items()}
    for _ in range(chance.randint(0, 25)):
        world.crash() if chance.random() < crashes else world.step()
    if chance.random() < 0.5:
        world.lose_power()
    verdict = choose(assigned, world.answers(), known, holders=holders, min_insync=world.min_insync)
    if not isinstance(verdict, Withheld):
        assert world.logs[verdict][: len(world.acknowledged)] == world.acknowledged


def test_the_newest_log_does_lead_in_most_histories_without_a_move() -> None:
    """The histories above are not all held up."""
    led = 0
    for seed in range(200):
        world = World(random.Random(seed))
        for _ in range(20):
            world.chance.choice([world.append, world.append, world.shrink, world.join, world.elect])()
        verdict = choose(THREE, world.answers(), KNOWN, holders=THREE_HOLD, min_insync=2)
        assert not isinstance(verdict, Withheld)
        assert world.logs[verdict][: len(world.acknowledged)] == world.acknowledged
        led += bool(world.acknowledged) and verdict != 1
    assert led > 20
