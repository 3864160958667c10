"""The beginning of a reign by a standby that holds its predecessor's picture (safety rules S7, S10, S12, S13, S14).

Goals: how long a cluster is without a controller depends on what changed in the last moment, and not on what exists.
Nothing that is less than certain is told to a broker or deleted.

Constraints: the picture is a memory. It may lack what the predecessor wrote and did not publish, what leaders wrote
since, and what people did; if the standby was held back it lacks much. So it never decides alone: a write names the
version that it goes by, an order goes out only for a state that this reign has written or read (``unverified``), and
full sets only when that holds for all.

Algorithm
    1. Read what is small, all at once: settings, registrations, deletion records; list the guards of topics, which are
       written and deleted together with topic nodes. (Names of topics are not listed: on some stores that costs what
       lies below them. What people did to topic nodes shows in the watch on them and in step 4.) A topic goes on from
       the picture if its guard stands, no deletion is recorded, and no other guard has its name. One of which the
       picture says that it is new, damaged or being created is taken up from the store like one that the picture does
       not name: first leaders and repairs are decided on what the store says now.
    2. Publish what differs from the predecessor's last publication that is known here, and begin to deliver orders.
    3. Give leaders to partitions whose leader is gone or bounced, by conditional writes. One that meets another
       version is read again, as ever. Then read the records of removed partitions.
    4. In steps that other events come between: read every topic anew (``verification``), take up what is not as the
       picture says like a reign without a picture does, and settle all. So a failure that happened while the picture
       was behind is replayed over what the reading adds. Clients' mutations wait behind this.
    5. Send every broker its full set.

Example: the controller writes leader 2 for a partition of dead broker 1, and dies before it tells anybody. The
standby's picture says leader 1 at version 7. It decides for leader 2 at version 7; the store holds version 8; it reads
"leader 2", which fits, and tells brokers 2 and 3, and everybody's metadata, of that.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection
from dataclasses import replace
from typing import Final

from regnum_model.ids import TopicId
from regnum_service.slices import slices
from regnum_telemetry import conventions, tracing

from regnum_election.brokers.changes import leave_strangers_out
from regnum_election.brokers.draining import take_up_draining
from regnum_election.configs.book import ConfigBook
from regnum_election.decisions.cluster import Cluster
from regnum_election.history.events import SUCCESSION
from regnum_election.standby.picture import Followed
from regnum_election.standby.verification import verify
from regnum_election.startup import (
    begin_trace,
    divided,
    find_removed,
    guarded_topics,
    take_up_brokers,
    take_up_deletions,
    take_up_removals,
)
from regnum_election.state.context import ControllerContext
from regnum_election.topics.adoption import TopicAdopter
from regnum_election.topics.deletion_orders import tell_deletions
from regnum_election.topics.found import read_guards
from regnum_election.topics.settling import settle_some
from regnum_election.traces.change_trace import ChangeTrace

PARTITIONS_PER_WRITE: Final = 500
"""Partitions that get new leaders together."""

TOPICS_PER_TURN: Final = 10_000
"""Topics looked at between two turns of the event loop (safety rule S22)."""


async def take_over(
    context: ControllerContext,
    adopter: TopicAdopter,
    configs: ConfigBook,
    followed: Followed,
    *,
    brokers_known: Callable[[], None],
) -> AsyncGenerator[None, None]:
    """Lead from a predecessor's picture; returns the steps that verify it and then send full sets.

    Args:
        context: the reign.
        adopter: takes topics up.
        configs: settings, not read yet.
        followed: what the predecessor last published, as far as it came.
        brokers_known: called when the picture holds the live brokers, and nothing else.
    """
    trace = begin_trace(context)
    context.events.reign_began("" if trace is None else trace.context)
    with tracing.within("" if trace is None else trace.context):
        await _lead(context, adopter, configs, followed, brokers_known, trace)
    return verify(context, adopter, trace, sorted(context.picture.names))


async def _lead(
    context: ControllerContext,
    adopter: TopicAdopter,
    configs: ConfigBook,
    followed: Followed,
    brokers_known: Callable[[], None],
    trace: ChangeTrace | None,
) -> None:
    started_s = context.clock.monotonic()
    guarded = await _read_what_is_small(context, configs, brokers_known)
    inherited, others = await _inherited(context, followed, guarded)
    small = context.picture
    context.picture = replace(inherited, brokers=small.brokers, draining=small.draining, settings=small.settings)
    context.unverified.inherit(inherited.topics)
    context.dispatch.hold_full_sets()
    context.dispatch.show(context.picture)
    found = await adopter.take_up(others)
    found += await find_removed(context, adopter, guarded)
    if trace is not None:
        trace.since(conventions.WON_UNIX_NANO, conventions.LOAD)
        trace.reached(conventions.LOADED_UNIX_NANO)
    await _publish_difference(context, followed, found)
    for broker in context.picture.brokers.values():
        context.dispatch.begin(broker)
    led_s = context.clock.monotonic()
    urgent, _ = await divided(context)
    for start in range(0, len(urgent), PARTITIONS_PER_WRITE):
        with context.traced(trace):
            await settle_some(context, urgent[start : start + PARTITIONS_PER_WRITE], SUCCESSION)
    # Nobody waits for these: no partition is added or removed before all is verified.
    await take_up_removals(context)
    await tell_deletions(context)
    context.log.info(
        "reign begun from the predecessor's picture",
        base_epoch=followed.epoch,
        base_version=followed.version,
        brokers=sorted(context.picture.brokers),
        topics=len(context.picture.topics),
        taken_up=len(found),
        partitions=len(context.picture.partitions),
        urgent=len(urgent),
        deletions=len(context.deletions),
        led_ms=round((led_s - started_s) * 1000),
        settled_ms=round((context.clock.monotonic() - led_s) * 1000),
    )


async def _read_what_is_small(
    context: ControllerContext, configs: ConfigBook, brokers_known: Callable[[], None]
) -> frozenset[TopicId]:
    """Settings, live brokers and deletions come into the context; returns the ids of which a guard stands."""

    async def brokers() -> None:
        await take_up_brokers(context)
        await take_up_draining(context)
        brokers_known()

    guards = asyncio.ensure_future(guarded_topics(context))
    reads = [asyncio.ensure_future(read) for read in (configs.begin(), brokers(), take_up_deletions(context))]
    try:
        await asyncio.gather(guards, *reads)
    finally:
        for read in (guards, *reads):
            read.cancel()
    # Which protocol is in force was read beside who is there.
    before = context.picture.brokers
    leave_strangers_out(context)
    if context.picture.brokers is not before:
        brokers_known()
    return guards.result()


async def _inherited(
    context: ControllerContext, followed: Followed, guarded: frozenset[TopicId]
) -> tuple[Cluster, list[str]]:
    """The part of the picture that this reign goes on from, and names of topics that are to be taken up from the store.

    Topic and guard come and go together. So a guard that the picture does not know is a topic that it does not know,
    and if it says a name that another topic of the picture has, the store has to say whose the name is.
    """
    doubtful, picture = followed.doubtful, followed.picture
    left: list[TopicId] = []
    async for some in slices(picture.topics, TOPICS_PER_TURN):
        left.extend(id for id in some if id not in guarded or id in context.deletions or id in doubtful)
    inherited = picture.without_topics(left)
    # Of those being deleted too: their names are not free yet.
    unknown = [id for id in guarded if id not in inherited.topics]
    names = {guard.topic for guard in (await read_guards(context, unknown)).values()}
    contested = [id for name in names if (id := inherited.names.get(name)) is not None]
    return _without_bare_brokers(inherited.without_topics(contested)), sorted(names)


def _without_bare_brokers(picture: Cluster) -> Cluster:
    """Brokers of which nothing is assigned any more may have been forgotten; no reign that reads the store has them."""
    assigned = picture.assigned.mutate()
    for broker, keys in picture.assigned.items():
        if not keys:
            del assigned[broker]
    return replace(picture, assigned=assigned.finish())


async def _publish_difference(context: ControllerContext, followed: Followed, found: Collection[TopicId]) -> None:
    """What the first publication has to name: whatever is not as it was published under the version it joins on to."""
    picture = context.picture
    changed = dict.fromkeys(key for id in found for key in picture.of_topic(id))
    for id in found:
        # Partitions that are gone are named too.
        changed.update(dict.fromkeys(key for key in followed.picture.of_topic(id) if key not in picture.partitions))
    changed.update(dict.fromkeys(key for key in followed.published_offline if key in picture.partitions))
    gone: dict[TopicId, str] = {}
    async for some in slices(followed.picture.topics.items(), TOPICS_PER_TURN):
        gone.update((id, topic.name) for id, topic in some if id not in picture.topics)
    context.dispatch.show(picture)
    context.metadata.publish(picture, tuple(changed), gone)
