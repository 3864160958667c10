"""Random histories of one partition of groups: commits, deletions, appends that land, are lost, or are put off.

What was acknowledged is shown from then on, by this coordinator and by the next one, until a later commit or a deletion
that somebody asked for takes its place; nothing is shown that nobody committed; the book counts what it has.
"""

import asyncio
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from regnum.types.v1 import errors_pb2
from regnum_broker.groups.decisions.offsets import Place
from regnum_broker.groups.decisions.state import Done
from regnum_broker.groups.offset_book import weight_of
from regnum_broker.groups.recorded.group_log import AGAIN_S
from regnum_broker.serving.produce import OwnAppend
from regnum_service.errors import RegnumError
from regnum_testing.clock import settle
from regnum_testing.group_partition import COMMITTED, GroupPartition

LANDED = OwnAppend(code=errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND, message="nobody heard")
LOST = OwnAppend(code=errors_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND, message="it never got there")
BUSY = OwnAppend(code=errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, message="later", put_off=True)
GROUPS = ("g", "h")

Step = tuple[str, str]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["commit", "commit", "commit", "delete", "ok", "ok", "landed", "lost", "busy"]),
        st.sampled_from(GROUPS),
    ),
    max_size=60,
)


class RandomPartition(GroupPartition):
    """A log whose appends end as a history says."""

    async def _append(self, batch: bytes) -> OwnAppend:
        assert self.outcomes is not None
        outcome = await self.outcomes.get()
        if outcome in {COMMITTED, LANDED}:
            self.batches.append(batch)
        return outcome


class History:
    """What was asked for, and what is known of it."""

    def __init__(self) -> None:
        self.partition = RandomPartition()
        self.partition.outcomes = asyncio.Queue()
        self.asked = 0
        self.floor = dict.fromkeys(GROUPS, 0)
        """At least this is shown."""
        self.answers: list[tuple[asyncio.Future[object], str, int]] = []

    async def take(self, step: Step) -> None:
        what, group_id = step
        outcomes = self.partition.outcomes
        assert outcomes is not None
        shard = self.partition.shard
        if what == "commit":
            self.asked += 1
            self.answers.append((self.partition.commit(self.asked, group_id), group_id, self.asked))  # type: ignore[arg-type]
        elif what == "delete" and not shard.is_committing(group_id):
            self.answers.append((shard.delete(group_id), group_id, 0))  # type: ignore[arg-type]
            self.floor[group_id] = 0
        elif what in {"ok", "landed", "lost", "busy"} and not shard.log.is_idle:
            outcomes.put_nowait({"ok": COMMITTED, "landed": LANDED, "lost": LOST, "busy": BUSY}[what])
        await self.partition.clock.advance(AGAIN_S)
        await settle()
        if self.partition.failures:
            self.partition.failures.clear()
            self.partition.outcomes = asyncio.Queue()
            self.partition.shard = await self.partition.following()
        self.hear()
        await self.judge()

    def hear(self) -> None:
        for answer, group_id, offset in [one for one in self.answers if one[0].done()]:
            if answer.exception() is None:
                assert answer.result() == Done()
                if offset:
                    self.floor[group_id] = max(self.floor[group_id], offset)
            else:
                assert isinstance(answer.exception(), RegnumError)
        self.answers = [one for one in self.answers if not one[0].done()]

    async def judge(self) -> None:
        book = self.partition.shard.offsets
        following = (await self.partition.following()).offsets
        assert following.by_group == book.by_group, "the next coordinator shows what this one does"
        for group_id in GROUPS:
            shown = book.of(group_id).get(Place("t", 0))
            assert (shown.offset if shown else 0) >= self.floor[group_id], "an acknowledged commit went back"
            assert shown is None or shown.offset <= self.asked
        present = [each for offsets in book.by_group.values() for each in offsets.items()]
        assert book.size_bytes == sum(weight_of(place, offset) for place, offset in present)


@given(STEPS)
@settings(max_examples=60, deadline=None)
def test_an_acknowledged_commit_is_shown_until_a_later_one_takes_its_place(steps: Sequence[Step]) -> None:
    async def run() -> None:
        history = History()
        for step in steps:
            await history.take(step)
        history.partition.shard.end(RegnumError(errors_pb2.ERROR_CODE_NOT_COORDINATOR, "the end"))
        history.hear()
        assert not history.answers, "whoever asked has been told"

    asyncio.run(run())
