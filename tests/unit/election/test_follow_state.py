"""What a standby is sent, what it makes of it, and what it does when the line breaks."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from regnum.election.v1 import standby_pb2
from regnum.types.v1 import errors_pb2
from regnum_election.decisions.cluster import Cluster
from regnum_election.publication.delta_log import Base, Journal, Publication
from regnum_election.standby.follower import FRESH_S, Follower
from regnum_election.standby.messages import PART_PARTITIONS, parts_of
from regnum_election.standby.picture import FollowedPicture, GapError
from regnum_election.standby.sender import INTERVAL_S, MANY_PARTITIONS, SETTLING_S, StandbyPublisher
from regnum_model.ids import ControllerEpoch, PartitionKey
from regnum_model.nodes import Address
from regnum_model.picture_line import CHANGES_KEPT, NO_PICTURE, PictureVersion
from regnum_service.errors import RegnumError
from regnum_testing.clock import FakeClock, settle
from regnum_testing.election_values import broker, cluster, topic
from regnum_testing.waiting import DEADLINE_S

EPOCH = ControllerEpoch(7)
ADDRESS = Address(host="h", port=1)


def picture_of(*names: str, partitions: int = 1) -> Cluster:
    return cluster(1, 2, topics=[topic(name, *[(1, 2)] * partitions) for name in names])


def change(journal: Journal, version: int) -> list[standby_pb2.StatePart]:
    publication = journal.next_for(PictureVersion(EPOCH, version) if version else NO_PICTURE)
    assert publication is not None
    return [standby_pb2.StatePart.FromString(part) for part in parts_of(publication, EPOCH)]


class Receiver:
    """One standby of a publisher."""

    def __init__(self, publisher: StandbyPublisher, epoch: int = 0, version: int = 0) -> None:
        self.picture = FollowedPicture()
        self.parts = 0
        self.error: RegnumError | None = None
        self._gate = asyncio.Event()
        self._gate.set()
        self._task = asyncio.create_task(self._run(publisher, ControllerEpoch(epoch), version))

    @property
    def version(self) -> int:
        return self.picture.whole.version

    def hold(self) -> None:
        self._gate.clear()

    def release(self) -> None:
        self._gate.set()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self, publisher: StandbyPublisher, epoch: ControllerEpoch, version: int) -> None:
        try:
            async for part in publisher.follow(epoch, version):
                self.parts += 1
                await self._gate.wait()
                self.picture.take(standby_pb2.StatePart.FromString(part))
        except RegnumError as error:
            self.error = error


class Line:
    """A publisher with its journal."""

    def __init__(self, base: Base | None = None) -> None:
        self.clock = FakeClock()
        self.journal = Journal(EPOCH, base)
        self.publisher = StandbyPublisher(epoch=EPOCH, journal=self.journal, clock=self.clock)

    def publish(self, picture: Cluster, *changed: PartitionKey) -> None:
        self.journal.publish(picture, changed)
        self.publisher.wake()


async def test_many_standbys_cost_one_encoding() -> None:
    line = Line()
    picture = picture_of("a", "b", partitions=400)
    line.publish(picture)
    receivers = [Receiver(line.publisher) for _ in range(5)]
    await settle(100)
    assert {receiver.version for receiver in receivers} == {1}
    assert line.publisher.encodings == 1
    line.publish(picture, PartitionKey(picture.names["a"], 3))
    await line.clock.advance(INTERVAL_S)
    assert {receiver.version for receiver in receivers} == {2}
    assert line.publisher.encodings == 2
    for receiver in receivers:
        assert receiver.picture.whole.picture.partitions == picture.partitions
        await receiver.close()


async def test_one_that_comes_while_everything_is_being_sent_shares_it_and_then_gets_what_changed() -> None:
    line = Line()
    picture = picture_of("a", "b", "c", partitions=400)
    line.publish(picture)
    slow = Receiver(line.publisher)
    slow.hold()
    await settle()
    quick = Receiver(line.publisher)
    await settle(100)
    assert quick.version == 1
    assert line.publisher.encodings == 1
    for _ in range(CHANGES_KEPT + 1):
        line.publish(picture)
    late = Receiver(line.publisher)
    await settle(100)
    assert late.version == 1
    assert line.publisher.encodings == 1, "everything was encoded once, for all three"
    await line.clock.advance(INTERVAL_S)
    assert late.version == line.journal.version
    slow.release()
    await line.clock.advance(3 * INTERVAL_S)
    assert slow.version == line.journal.version
    for receiver in (slow, quick, late):
        await receiver.close()


async def test_a_change_goes_out_at_once_and_many_in_a_row_merge() -> None:
    line = Line()
    picture = picture_of("a")
    line.publish(picture)
    receiver = Receiver(line.publisher)
    await line.clock.advance(1.0)
    line.publish(picture)
    await settle()
    assert receiver.version == 2
    for _ in range(50):
        line.publish(picture)
        await settle()
    assert (receiver.version, receiver.parts) == (2, 2)
    await line.clock.advance(INTERVAL_S)
    assert (receiver.version, receiver.parts) == (52, 3)
    await receiver.close()


async def test_what_happens_to_many_partitions_is_sent_once_and_when_brokers_have_it() -> None:
    line = Line()
    picture = picture_of("a", partitions=MANY_PARTITIONS + 1)
    line.publish(picture)
    receiver = Receiver(line.publisher)
    await line.clock.advance(1.0)
    line.publish(picture, *picture.partitions)
    await line.clock.advance(SETTLING_S - 0.1)
    assert (receiver.version, receiver.parts) == (1, 1)
    for _ in range(10):
        line.publish(picture, *picture.partitions)
    await line.clock.advance(0.2)
    assert (receiver.version, receiver.parts) == (12, 2)
    await receiver.close()


async def test_what_a_standby_holds_of_this_reign_or_of_its_base_is_not_sent_again() -> None:
    line = Line(Base(epoch=ControllerEpoch(6), version=40))
    picture = picture_of("a", "b")
    line.publish(picture, PartitionKey(picture.names["b"], 0))
    before = Journal(ControllerEpoch(6), Base(epoch=ControllerEpoch(5), version=39))
    before.publish(picture_of("a"))
    held = [standby_pb2.StatePart.FromString(p) for p in parts_of(_publication(before), ControllerEpoch(6))]
    for epoch, version, parts in ((6, 40, 2), (6, 39, 1), (6, 41, 1), (5, 40, 1), (7, 41, 1), (7, 99, 1)):
        receiver = Receiver(line.publisher, epoch, version)
        for part in held:
            receiver.picture.take(part)
        await settle()
        assert receiver.parts == parts, (epoch, version)
        whole = receiver.picture.whole
        if (epoch, version) != (7, 41):
            assert (whole.epoch, whole.version, set(whole.picture.names)) == (7, 41, {"a", "b"})
        await receiver.close()


def _publication(journal: Journal) -> Publication:
    publication = journal.next_for(NO_PICTURE)
    assert publication is not None
    return publication


async def test_the_end_of_the_reign_ends_the_stream_with_a_name() -> None:
    line = Line()
    line.publish(picture_of("a"))
    receiver = Receiver(line.publisher)
    await line.clock.advance(1.0)
    line.publisher.close()
    await settle()
    assert receiver.error is not None
    assert receiver.error.code == errors_pb2.ERROR_CODE_NOT_CONTROLLER


def test_a_topic_goes_on_over_many_parts() -> None:
    journal, picture = Journal(EPOCH), picture_of("big", "small", partitions=PART_PARTITIONS + 7)
    journal.publish(picture)
    parts = change(journal, 0)
    assert len(parts) > 2
    followed = FollowedPicture()
    assert [followed.take(part) for part in parts] == [False] * (len(parts) - 1) + [True]
    assert followed.whole.picture.partitions == picture.partitions
    assert followed.whole.picture.topics == picture.topics
    assert followed.whole.picture.assigned == picture.assigned


def test_a_change_that_breaks_off_leaves_the_picture_as_it_was() -> None:
    journal, picture = Journal(EPOCH), picture_of("a")
    journal.publish(picture)
    followed = FollowedPicture()
    (part,) = change(journal, 0)
    followed.take(part)
    larger = picture_of("a", "b", partitions=PART_PARTITIONS)
    journal.publish(larger)
    first, *_ = change(journal, 0)
    followed.take(first)
    followed.break_off()
    assert (followed.whole.version, set(followed.whole.picture.names)) == (1, {"a"})


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda parts: parts[1:], id="the first part is missing"),
        pytest.param(lambda parts: [parts[0], *parts[2:]], id="a part in the middle is missing"),
        pytest.param(lambda parts: [_joining(parts[0], 5), *parts[1:]], id="it joins on to something else"),
        pytest.param(lambda parts: [parts[0], _last(parts[1])], id="a topic is not whole"),
        pytest.param(lambda parts: [_without_members(parts[0]), *parts[1:]], id="a log was not listed"),
    ],
)
def test_what_does_not_fit_is_no_picture(
    spoil: Callable[[list[standby_pb2.StatePart]], list[standby_pb2.StatePart]],
) -> None:
    journal = Journal(EPOCH)
    journal.publish(picture_of("a", partitions=2 * PART_PARTITIONS + 1))
    followed = FollowedPicture()
    parts = spoil(change(journal, 0))
    with pytest.raises(GapError):
        take_all(followed, parts)
    assert followed.whole.version == 0


def take_all(followed: FollowedPicture, parts: list[standby_pb2.StatePart]) -> None:
    for part in parts:
        followed.take(part)


def _joining(part: standby_pb2.StatePart, version: int) -> standby_pb2.StatePart:
    part.from_version = version
    return part


def _last(part: standby_pb2.StatePart) -> standby_pb2.StatePart:
    part.last = True
    return part


def _without_members(part: standby_pb2.StatePart) -> standby_pb2.StatePart:
    changed = standby_pb2.StatePart()
    changed.CopyFrom(part)
    del changed.members[:]
    return changed


def test_marks_follow_their_partitions() -> None:
    journal, picture = Journal(EPOCH), picture_of("a", "b", partitions=2)
    key, other = PartitionKey(picture.names["a"], 1), PartitionKey(picture.names["b"], 0)
    troubled = picture.with_trouble({key: "lost"}).with_offline(broker(2).id, [other])
    journal.publish(troubled)
    followed = FollowedPicture()
    for part in change(journal, 0):
        followed.take(part)
    assert followed.whole.doubtful == {key.topic_id}
    assert list(followed.whole.published_offline) == [other]
    held = picture.partitions[key].held
    assert held is not None
    journal.publish(picture.with_recovered({key: replace(held, version=9)}), [key, other])
    for part in change(journal, 1):
        followed.take(part)
    assert not followed.whole.doubtful
    assert not followed.whole.published_offline
    after = followed.whole.picture.partitions[key].held
    assert after is not None
    assert after.version == 9


class Wire:
    """What a follower is connected to."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.coming: asyncio.Queue[bytes | RegnumError] = asyncio.Queue()

    @asynccontextmanager
    async def open(
        self, address: Address, epoch: ControllerEpoch, version: int
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        self.asked.append((epoch, version))

        async def parts() -> AsyncIterator[bytes]:
            while True:
                part = await self.coming.get()
                if isinstance(part, RegnumError):
                    raise part
                yield part

        yield parts()

    def send(self, journal: Journal, version: int) -> None:
        for part in change(journal, version):
            self.coming.put_nowait(part.SerializeToString())

    def break_off(self) -> None:
        self.coming.put_nowait(RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "gone"))


class Standing:
    """A follower that follows."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.wire = Wire()
        self.follower = Follower(open_stream=self.wire.open, clock=self.clock)
        self.journal = Journal(EPOCH)
        self.journal.publish(picture_of("a"))
        self.task = asyncio.create_task(self.follower.run())

    async def begin(self) -> None:
        self.follower.heard_of(ADDRESS)
        self.wire.send(self.journal, 0)
        await settle()
        assert self.follower.followed.version == 1


@pytest.fixture
async def standing() -> AsyncIterator[Standing]:
    standing = Standing()
    await standing.begin()
    yield standing
    standing.task.cancel()
    await asyncio.wait([standing.task])


async def test_a_follower_goes_on_from_what_it_holds_when_the_line_breaks(standing: Standing) -> None:
    standing.wire.break_off()
    await standing.clock.advance(1.0)
    assert standing.wire.asked == [(0, 0), (7, 1)]
    standing.journal.publish(picture_of("a", "b"), [PartitionKey(picture_of("b").names["b"], 0)])
    standing.wire.send(standing.journal, 1)
    await settle()
    assert set(standing.follower.followed.picture.names) == {"a", "b"}


async def test_a_follower_begins_anew_after_a_gap(standing: Standing) -> None:
    standing.journal.publish(picture_of("a"))
    standing.journal.publish(picture_of("a"))
    standing.wire.send(standing.journal, 2)
    await standing.clock.advance(1.0)
    assert standing.wire.asked == [(0, 0), (0, 0)]
    assert standing.follower.followed.version == 0


async def test_a_winner_reads_to_the_end_what_its_predecessor_sent(standing: Standing) -> None:
    standing.follower.heard_of(None)
    standing.journal.publish(picture_of("a", "b"), [PartitionKey(picture_of("b").names["b"], 0)])
    standing.wire.send(standing.journal, 1)
    standing.wire.break_off()
    taken = await standing.follower.take()
    assert taken is not None
    assert (taken.epoch, taken.version, set(taken.picture.names)) == (7, 2, {"a", "b"})
    assert standing.follower.followed.version == 0, "the reign has it now"


async def test_a_winner_does_not_wait_for_a_predecessor_that_hangs(standing: Standing) -> None:
    async with asyncio.timeout(DEADLINE_S):
        taken = await standing.follower.take()
    assert taken is not None
    assert taken.version == 1


async def test_one_that_was_cut_off_for_long_has_no_picture(standing: Standing) -> None:
    standing.wire.break_off()
    await standing.clock.advance(0.1)
    standing.follower.heard_of(None)
    standing.clock.skip(FRESH_S + 1)
    assert await standing.follower.take() is None


async def test_one_that_is_told_that_nothing_changed_is_not_cut_off(standing: Standing) -> None:
    standing.wire.break_off()
    await standing.clock.advance(1.0)
    confirmed = standby_pb2.StatePart(controller_epoch=7, from_version=1, to_version=1, last=True)
    standing.wire.coming.put_nowait(confirmed.SerializeToString())
    await settle()
    standing.clock.skip(10 * FRESH_S)
    taken = await standing.follower.take()
    assert taken is not None
    assert taken.version == 1


async def test_a_process_that_reigned_follows_the_next_controller(standing: Standing) -> None:
    await standing.follower.take()
    await settle()
    standing.follower.heard_of(ADDRESS)
    await settle()
    assert standing.wire.asked[-1] == (0, 0)
    standing.wire.send(standing.journal, 0)
    await settle()
    assert standing.follower.followed.version == 1


def test_a_large_topic_grows_part_by_part_and_is_seen_when_it_is_whole() -> None:
    journal = Journal(EPOCH)
    picture = picture_of("a", "large", partitions=3 * PART_PARTITIONS + 7)
    journal.publish(picture)
    followed = FollowedPicture()
    *parts, last = change(journal, 0)
    for part in parts:
        assert not followed.take(part)
        assert not followed.whole.picture.topics
    assert followed.take(last)
    assert followed.whole.picture.partitions == picture.partitions
    assert followed.whole.picture.topics == picture.topics
    assert followed.whole.picture.assigned == picture.assigned


def test_a_new_topic_that_is_not_whole_at_the_end_is_no_picture() -> None:
    journal = Journal(EPOCH)
    journal.publish(picture_of("large", partitions=2 * PART_PARTITIONS))
    first, second = change(journal, 0)
    del second.topics[0].partitions[-1]
    followed = FollowedPicture()
    followed.take(first)
    with pytest.raises(GapError, match="not whole"):
        followed.take(second)


def test_a_new_topic_with_more_partitions_than_it_said_is_no_picture() -> None:
    journal = Journal(EPOCH)
    journal.publish(picture_of("large", partitions=2 * PART_PARTITIONS))
    first, second = change(journal, 0)
    for part in (first, second):
        part.topics[0].partition_count = 2 * PART_PARTITIONS - 1
    followed = FollowedPicture()
    followed.take(first)
    with pytest.raises(GapError, match="fewer partitions"):
        followed.take(second)


def test_a_part_that_names_a_topic_twice_is_no_picture() -> None:
    journal = Journal(EPOCH)
    journal.publish(picture_of("a"))
    (only,) = change(journal, 0)
    only.topics.add().CopyFrom(only.topics[0])
    with pytest.raises(GapError, match="twice"):
        FollowedPicture().take(only)


def test_removed_partitions_are_gone_from_what_is_followed() -> None:
    """More of them than one part has, and others that changed: what is gone comes first."""
    journal = Journal(EPOCH)
    picture = picture_of("a", "large", partitions=3 * PART_PARTITIONS)
    journal.publish(picture)
    followed = FollowedPicture()
    for part in change(journal, 0):
        followed.take(part)
    id = picture.names["large"]
    gone = range(PART_PARTITIONS, 3 * PART_PARTITIONS)
    after = picture.without_partitions({id: gone})
    journal.publish(after, [PartitionKey(id, number) for number in (0, 1, *gone)])
    parts = change(journal, 1)
    assert len(parts) > 2
    for part in parts:
        followed.take(part)
    assert followed.whole.picture.partitions == after.partitions
    assert followed.whole.picture.topics == after.topics
    assert followed.whole.picture.assigned == after.assigned
    # Added again, and removed in a change that is not followed by itself.
    journal.publish(picture, [PartitionKey(id, number) for number in gone])
    journal.publish(after, [PartitionKey(id, gone[-1])])
    for part in change(journal, 2):
        followed.take(part)
    assert followed.whole.picture.partitions == after.partitions
