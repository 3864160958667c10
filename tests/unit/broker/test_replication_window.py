"""Answers that a follower gets before it has taken the one before: when they go, and what counts as acknowledged."""

import asyncio
import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from regnum.replication.v1 import replication_pb2
from regnum_broker.replication.decisions.isr import after_fetch, at_new_epoch
from regnum_broker.replication.decisions.window import ANSWERS_MAX, GATHER_S, GATHER_S_MAX, QUIET_S, SPACING_S, Window
from regnum_broker.replication.sessions.fetch_session import FetchSession
from regnum_records.header import end_offset_of
from regnum_service.errors import RegnumError
from regnum_testing.clock import settle
from regnum_testing.leading_replicas import (
    FOLLOWER,
    FOLLOWER_EPOCH,
    LEADER,
    TOPIC_ID,
    FetchingFollower,
    LeadingReplicas,
)
from regnum_testing.waiting import within

LONG_MS = 60_000
BYTES_MAX = 1_000_000


def window(*, requests: int = 1, sent: int = 0, size_bytes: int = 100, now_s: float = 10.0) -> Window:
    """One whose follower takes answers that it has not asked for."""
    found = Window()
    for _ in range(requests):
        assert found.asked(0, bytes_max=BYTES_MAX)
    for _ in range(sent):
        found.answered(size_bytes, now_s=now_s)
    return found


def test_nothing_is_sent_before_the_first_request() -> None:
    assert Window().opens_s(busy=False, moved_s=-math.inf) == math.inf


def test_an_answer_goes_at_once_where_none_is_on_its_way() -> None:
    assert window().opens_s(busy=False, moved_s=-math.inf) == -math.inf


def test_what_came_while_an_answer_was_on_its_way_goes_with_what_comes_soon() -> None:
    found = window(sent=1)
    assert found.asked(1, bytes_max=BYTES_MAX)
    assert found.opens_s(busy=True, moved_s=-math.inf) == 10.0 + GATHER_S
    assert window().opens_s(busy=True, moved_s=-math.inf) == -math.inf


def test_while_records_come_without_a_pause_an_answer_waits_for_more_of_them_and_not_for_ever() -> None:
    found = window(sent=1)
    assert found.asked(1, bytes_max=BYTES_MAX)
    assert found.opens_s(busy=True, moved_s=10.0 + GATHER_S - QUIET_S) == pytest.approx(10.0 + GATHER_S)
    assert found.opens_s(busy=True, moved_s=10.0 + GATHER_S) == pytest.approx(10.0 + GATHER_S + QUIET_S)
    assert found.opens_s(busy=True, moved_s=10.0 + GATHER_S_MAX) == pytest.approx(10.0 + GATHER_S_MAX)
    assert found.opens_s(busy=False, moved_s=10.0 + GATHER_S) == -math.inf


def test_the_next_one_waits_a_moment_for_the_acknowledgement_of_the_one_before() -> None:
    found = window(sent=1)
    assert found.opens_s(busy=False, moved_s=-math.inf) == 10.0 + SPACING_S
    assert found.asked(1, bytes_max=BYTES_MAX)
    assert found.opens_s(busy=False, moved_s=-math.inf) == -math.inf


def test_no_more_answers_are_on_their_way_than_may_be() -> None:
    found = window(sent=ANSWERS_MAX)
    assert found.opens_s(busy=False, moved_s=-math.inf) == math.inf
    assert found.asked(1, bytes_max=BYTES_MAX)
    assert found.opens_s(busy=False, moved_s=-math.inf) < math.inf


def test_no_more_bytes_are_on_their_way_than_the_follower_wants_in_one_answer() -> None:
    found = window(sent=2, size_bytes=BYTES_MAX // 2)
    assert found.opens_s(busy=False, moved_s=-math.inf) == math.inf
    assert found.asked(1, bytes_max=BYTES_MAX)
    assert found.opens_s(busy=False, moved_s=-math.inf) < math.inf


def test_a_follower_that_does_not_say_what_it_took_gets_an_answer_for_each_request() -> None:
    found = Window()
    assert found.asked(None, bytes_max=BYTES_MAX)
    found.answered(1, now_s=0.0)
    assert found.opens_s(busy=False, moved_s=-math.inf) == math.inf
    assert found.asked(None, bytes_max=BYTES_MAX)
    assert found.opens_s(busy=False, moved_s=-math.inf) == -math.inf


@pytest.mark.parametrize("taken", [-1, 0, 3])
def test_answers_that_were_not_sent_or_were_taken_before_cannot_have_been_taken(taken: int) -> None:
    found = window(sent=2)
    assert found.asked(1, bytes_max=BYTES_MAX)
    assert not found.asked(taken, bytes_max=BYTES_MAX)
    assert (found.requests, found.taken) == (2, 1)


def test_a_request_that_takes_nothing_is_answered_at_once_where_nothing_is_on_its_way() -> None:
    found = window(requests=2)
    assert found.idle
    assert found.hurried
    found.answered(0, now_s=10.0)
    assert not found.idle
    assert not found.hurried


def test_a_follower_that_is_always_some_answers_behind_counts_as_caught_up_as_of_what_it_has() -> None:
    """Eight answers are on their way: the leader's log end at its last fetch is never what it reaches next."""
    progress = at_new_epoch(in_sync=False, now_s=0.0)
    for second in range(8, 60):
        progress = after_fetch(progress, offset=10 * (second - 8), leader_end=10 * second, now_s=float(second))
    assert 60 - 2 * 8 - 1 <= progress.caught_up_s <= 60 - 8


def test_a_follower_that_falls_further_behind_counts_as_caught_up_no_later() -> None:
    progress = after_fetch(at_new_epoch(in_sync=True, now_s=0.0), offset=0, leader_end=100, now_s=1.0)
    for second in range(2, 50):
        progress = after_fetch(progress, offset=second, leader_end=100 * second, now_s=float(second))
    assert progress.caught_up_s == 0.0


@dataclass(slots=True, kw_only=True)
class Piped:
    """Broker 2, which takes answers before it has asked again."""

    leader: LeadingReplicas
    session: FetchSession
    taken: int = 0
    bytes_max: int = BYTES_MAX
    throttled_bytes_max: int | None = None
    answers: list[replication_pb2.FetchReplicaResponse] = field(default_factory=list)

    def ask(self, *positions: tuple[int, int], continues: bool = False, taken: int | None = None) -> None:
        """Name (partition, offset) pairs."""
        self.session.push(
            replication_pb2.FetchReplicaRequest(
                replica_id=FOLLOWER,
                broker_epoch=FOLLOWER_EPOCH,
                max_wait_ms=LONG_MS,
                max_bytes=self.bytes_max,
                throttled_bytes_max=self.throttled_bytes_max,
                answers_taken=self.taken if taken is None else taken,
                positions=[
                    replication_pb2.FetchPosition(
                        topic_id=TOPIC_ID,
                        partition=number,
                        fetch_offset=offset,
                        last_fetched_epoch=0 if offset else -1,
                        continues=continues,
                    )
                    for number, offset in positions
                ],
            )
        )

    async def offsets(self) -> dict[int, tuple[int, int]]:
        """First offset, and the one after the last, of the records in the next answer, by partition."""
        answer = await within(self.session.next_answer())
        assert answer is not None
        self.answers.append(answer)
        return {
            item.partition: (int.from_bytes(item.records[:8], "big"), end_offset_of(item.records))
            for item in answer.partitions
            if item.records
        }


@pytest.fixture
async def piped(tmp_path: Path) -> AsyncIterator[Piped]:
    async with LeadingReplicas(tmp_path, partitions=3) as leader:
        yield Piped(leader=leader, session=leader.session())


async def test_records_follow_those_that_are_on_their_way_and_count_for_nothing_before_they_are_acknowledged(
    piped: Piped,
) -> None:
    piped.ask((0, 0))
    for number in range(4):
        await piped.leader.append(0)
        assert await piped.offsets() == {0: (number, number + 1)}
    assert piped.leader.partition(0).high_watermark == 0
    piped.taken = 3
    piped.ask((0, 3), continues=True)
    await piped.leader.append(0)
    assert await piped.offsets() == {0: (4, 5)}
    assert piped.leader.partition(0).high_watermark == 3


async def test_a_follower_that_restarts_is_sent_everything_from_there_whatever_was_sent(piped: Piped) -> None:
    piped.ask((0, 0), (1, 0))
    for _ in range(3):
        await piped.leader.append(0)
        await piped.offsets()
    # The second was not stored: the third is passed over.
    piped.taken = 2
    piped.ask((0, 1))
    assert await piped.offsets() == {0: (1, 3)}
    assert piped.answers[-1].requests_taken == 2
    assert piped.leader.partition(0).high_watermark == 1


async def test_what_the_follower_lacks_is_sent_again_when_all_that_was_sent_is_taken(piped: Piped) -> None:
    """It says that it goes on, and has less than it was sent: whatever the reason, it gets the rest."""
    piped.ask((0, 0))
    for _ in range(2):
        await piped.leader.append(0)
        await piped.offsets()
    piped.taken = 2
    piped.ask((0, 1), continues=True)
    assert await piped.offsets() == {0: (1, 2)}


async def test_an_acknowledgement_of_an_earlier_epoch_counts_for_nothing(piped: Piped) -> None:
    piped.ask((0, 0))
    await piped.leader.append(0)
    await piped.offsets()
    piped.leader.lead(0, epoch=1, min_insync=2)
    piped.taken = 1
    piped.ask((0, 1), continues=True)
    assert await piped.offsets() == {}
    (refused,) = piped.answers[-1].partitions
    assert refused.error_code
    assert piped.leader.partition(0).high_watermark == 0


async def test_a_follower_that_takes_what_was_never_sent_is_refused(piped: Piped) -> None:
    piped.ask((0, 0))
    await piped.leader.append(0)
    await piped.offsets()
    piped.ask((0, 1), taken=7)
    with pytest.raises(RegnumError, match="7 answers taken"):
        await piped.session.next_answer()
    assert piped.leader.partition(0).high_watermark == 0


async def test_nobody_is_woken_for_records_that_cannot_be_sent_yet(piped: Piped) -> None:
    """A leader under load: what comes while as much is on its way as may be is looked at when the next answer goes."""
    piped.bytes_max = 1
    piped.ask((0, 0))
    await piped.leader.append(0)
    await piped.offsets()
    waiting = asyncio.create_task(piped.offsets())
    before = piped.leader.looked_at
    for _ in range(20):
        await piped.leader.append(0)
    assert piped.leader.looked_at == before
    piped.taken = 1
    piped.ask((0, 1), continues=True)
    assert await waiting == {0: (1, 2)}


async def test_what_a_new_replica_takes_is_not_exceeded_by_answers_that_it_has_not_asked_for(piped: Piped) -> None:
    for number in (0, 1):
        piped.leader.lead(number, isr=(LEADER,), adding=(FOLLOWER,))
        await piped.leader.append(number)
    piped.throttled_bytes_max = 1
    piped.ask((0, 0), (1, 0), (2, 0))
    (filled,) = await piped.offsets()
    await piped.leader.append(2)
    assert await piped.offsets() == {2: (0, 1)}
    piped.taken = 2
    piped.ask((filled, 1), (2, 1), continues=True)
    assert await piped.offsets() == {1 - filled: (0, 1)}


def test_no_more_bytes_are_on_their_way_than_a_follower_takes_at_a_time() -> None:
    found = window()
    assert found.room_bytes == BYTES_MAX
    found.answered(BYTES_MAX - 10, now_s=10.0)
    assert found.room_bytes == 10
    found.answered(BYTES_MAX, now_s=10.1)
    assert found.room_bytes == 1, "one batch fits in any case; no answer goes before others were taken"
    assert found.opens_s(busy=False, moved_s=-math.inf) == math.inf


async def test_a_follower_of_before_is_told_of_a_partition_in_the_answer_to_the_request_that_names_it(
    tmp_path: Path,
) -> None:
    """It does not say what it has taken, and throws away what an earlier answer says: it would wait for ever."""
    async with LeadingReplicas(tmp_path) as leading:
        await leading.append(1)
        follower = FetchingFollower(leading.session())
        follower.hand_in((0, 0), wait_ms=LONG_MS)
        follower.hand_in((1, 0), wait_ms=LONG_MS)
        first = await within(follower.answer())
        assert [item.partition for item in first.partitions if item.records] == []
        assert 1 not in {item.partition for item in first.partitions}
        second = await within(follower.answer())
        assert [item.partition for item in second.partitions if item.records] == [1]


async def test_a_partition_whose_order_is_on_its_way_does_not_make_a_stream_a_busy_one(tmp_path: Path) -> None:
    """A producer that waits for each record would wait for more to come with it."""
    async with LeadingReplicas(tmp_path) as leading:
        session = leading.session()
        follower = FetchingFollower(session)
        await within(follower.ask((1, 0), epoch=9))
        await within(follower.ask((0, 0)))
        for end in range(3):
            asking = follower.asking((0, end), wait_ms=LONG_MS)
            await settle()
            assert not session.is_busy
            await leading.append(0)
            await within(asking)
