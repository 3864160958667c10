"""The largest that streams of the controller carry holds its loop shortly (safety rule S22)."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, cast

import pytest
from regnum.admin.v1 import events_pb2
from regnum.election.v1 import controller_pb2, standby_pb2
from regnum_election.brokers.lifeline import Lifelines
from regnum_election.decisions.cluster import Cluster, HeldState, Partition, Topic
from regnum_election.decisions.liveness import Listener
from regnum_election.history.encoding import decode
from regnum_election.history.events import SETTLING, PartitionRow, PartitionsEntry, Position
from regnum_election.history.following import follow
from regnum_election.history.log import EventLog
from regnum_election.publication.delta_log import Journal
from regnum_election.reign.events import IsrsWritten, ReplicasOffline
from regnum_election.servicers.events import EventServicer
from regnum_election.standby.picture import FollowedPicture
from regnum_election.standby.sender import StandbyPublisher
from regnum_election.topics.requests import PARTITIONS_MAX
from regnum_model.contact import Contact
from regnum_model.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    ElectionId,
    LeaderEpoch,
    LogId,
    PartitionKey,
    TopicId,
)
from regnum_model.nodes import Address, LeaderAndIsr, Membership
from regnum_service.clock import SystemClock
from regnum_testing.held_loop import HeldLoop, run_measured
from regnum_testing.served import Caller

pytestmark = pytest.mark.alone

FOLLOWED_PARTITIONS = 40_000


@pytest.mark.parametrize("partitions", [pytest.param(1, marks=pytest.mark.full), PARTITIONS_MAX])
def test_a_standby_is_shown_a_large_picture(partitions: int) -> None:
    epoch = ControllerEpoch(7)
    members = {BrokerId(1): Membership(broker_epoch=BrokerEpoch(5), log_id=LogId("log"))}
    picture = Cluster().with_topics(
        (
            Topic(name=f"t{number}", id=TopicId(f"{number:022}"), version=0, partitions=tuple(range(partitions))),
            {
                each: Partition(
                    replicas=(BrokerId(1),),
                    held=HeldState(
                        state=LeaderAndIsr(
                            topic_id=TopicId(f"{number:022}"),
                            leader=BrokerId(1),
                            leader_epoch=LeaderEpoch(1),
                            isr=(BrokerId(1),),
                            elr=(),
                            members=members,
                            controller_epoch=epoch,
                        ),
                        version=1,
                    ),
                )
                for each in range(partitions)
            },
        )
        for number in range(FOLLOWED_PARTITIONS // partitions)
    )

    async def scenario(held: HeldLoop) -> None:
        journal = Journal(epoch)
        publisher = StandbyPublisher(epoch=epoch, journal=journal, clock=SystemClock())
        followed = FollowedPicture()
        with held.measuring("both ends of FollowState"):
            journal.publish(picture)
            async for part in publisher.follow(ControllerEpoch(0), 0):
                # The two ends are two processes.
                await asyncio.sleep(0)
                if followed.take(standby_pb2.StatePart.FromString(part)):
                    break
        assert len(followed.whole.picture.partitions) == FOLLOWED_PARTITIONS

    run_measured(scenario).assert_free()


def test_a_long_event_log_is_searched_and_followed(tmp_path: Path) -> None:
    """400 failovers of 500 partitions: in pages, by filters that fit much and nothing, and by a standby without any."""
    entries, rows = 400, 500
    state = LeaderAndIsr(
        topic_id=TopicId("t"),
        leader=BrokerId(1),
        leader_epoch=LeaderEpoch(1),
        isr=(BrokerId(1), BrokerId(2), BrokerId(3)),
        elr=(),
        members={BrokerId(1): Membership(broker_epoch=BrokerEpoch(5), log_id=LogId("log"))},
        controller_epoch=ControllerEpoch(1),
    )
    moved = [PartitionRow(PartitionKey(TopicId("t"), number), state, state, 1) for number in range(rows)]
    topics = {TopicId("t"): Topic(name="orders", id=TopicId("t"), version=0, partitions=())}

    async def anybody() -> None:
        return None

    async def scenario(held: HeldLoop) -> None:
        log, standby = EventLog(SystemClock()), EventLog(SystemClock())
        log.open(tmp_path / "log")
        standby.open(tmp_path / "standby")
        await log.ready()
        with held.measuring("a long history is written down"):
            for number in range(entries):
                log.append(
                    PartitionsEntry(
                        position=Position(ControllerEpoch(1), 1 + number * rows),
                        controller=ElectionId(1),
                        time_unix_ms=1,
                        reason=SETTLING,
                        rows=moved,
                        topics=topics,
                    )
                )
                if number % 50 == 0:
                    # Events come in bursts, not all in one turn.
                    await asyncio.sleep(0.05)
            while log.written + log.dropped < entries * rows:
                await asyncio.sleep(0.01)
        assert log.dropped == 0
        servicer = EventServicer(anybody, log, SystemClock())
        for chosen in ({}, {"topic": "orders", "partition": 7}, {"topic": "audit"}, {"broker_id": 9}):
            request = events_pb2.DescribeEventsRequest(filter=events_pb2.EventFilter(**chosen), limit=1_000)
            with held.measuring(f"DescribeEvents {chosen}"):
                for _ in range(5):
                    page = await servicer.DescribeEvents(request, cast("Any", Caller()))
                    page.SerializeToString()
                    request.before.CopyFrom(page.next)
        with held.measuring("both ends of FollowEvents"):
            async for portion in follow(log, standby.last, check=anybody):
                standby.take(portion)
                # The two ends are two processes.
                await asyncio.sleep(0)
                if decode(portion[-1]).number == 1 + (entries - 1) * rows:
                    break
        await log.close()
        await standby.close()

    run_measured(scenario).assert_free()


def test_a_broker_reports_all_it_may_on_its_lifeline() -> None:
    """Both lists of contacts are longer than a cluster, and reports are as many as a batch has."""
    reports, contacts = 1_000, 10_000
    message = controller_pb2.BrokerLifelineRequest(
        beat=2,
        report_number=1,
        isr_reports=[
            controller_pb2.IsrReport(topic_id=f"{number:022}", partition=0, version=3, isr=[1, 2, 3], node=b"x" * 400)
            for number in range(reports)
        ],
        offline_replicas=[controller_pb2.OfflineReplica(topic_id=f"{number:022}") for number in range(reports)],
        fetch_contacts=controller_pb2.FetchContacts(
            unreachable_leaders=range(contacts), silent_followers=range(contacts)
        ),
        busy=controller_pb2.BusyPartitions(
            topics=[controller_pb2.BusyTopic(topic_id=f"{number:022}", partitions=[0]) for number in range(reports)]
        ),
    ).SerializeToString()
    hello = controller_pb2.BrokerLifelineRequest(
        beat=1, hello=controller_pb2.LifelineHello(broker_id=1, broker_epoch=5)
    ).SerializeToString()

    async def scenario(held: HeldLoop) -> None:
        events: list[object] = []
        tasks: list[asyncio.Task[None]] = []

        async def accepted(_: Address) -> Contact:
            return Contact.ACCEPTED

        def spawn(name: str, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
            tasks.append(asyncio.create_task(coroutine, name=name))
            return tasks[-1]

        async def said() -> AsyncIterator[controller_pb2.BrokerLifelineRequest]:
            for data in (hello, message):
                # A turn for each message, as when it comes from the network.
                await asyncio.sleep(0)
                yield controller_pb2.BrokerLifelineRequest.FromString(data)
            await asyncio.Event().wait()

        lifelines = Lifelines(
            clock=SystemClock(),
            probe=accepted,
            report=events.append,
            listening=lambda: Listener(
                session_connected=True, loop_lag_s=0.0, since_silence_fence_s=None, session_timeout_s=6.0
            ),
            spawn=spawn,
            fences=True,
        )
        lifelines.begin(ControllerEpoch(1), elected_at=BrokerEpoch(0))
        with held.measuring("BrokerLifeline"):
            async for answer in lifelines.BrokerLifeline(said(), None):
                answer.SerializeToString()
                if answer.report_acknowledged == 1:
                    break
        assert [type(event) for event in events] == [IsrsWritten, ReplicasOffline]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run_measured(scenario).assert_free()
