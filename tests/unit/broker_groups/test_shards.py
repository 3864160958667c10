"""A shard over a log that a test answers for: order, failure, deadlines, expiry, loading."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from regnum.types.v1 import errors_pb2
from regnum_broker.groups.decisions.membership import heartbeat, sync
from regnum_broker.groups.decisions.offsets import Place
from regnum_broker.groups.decisions.state import (
    Again,
    Answer,
    Done,
    GroupError,
    GroupState,
    Identity,
    Joined,
    Refusal,
    Synced,
    SyncRequest,
)
from regnum_broker.serving.produce import OwnAppend
from regnum_records.read import read_records
from regnum_records.record import Record
from regnum_service.errors import RegnumError
from regnum_telemetry.instruments import groups as instruments
from regnum_testing.clock import settle
from regnum_testing.group_partition import COMMITTED, LIMITS, GroupPartition

DAY_MS = 86_400_000


async def member_of(partition: GroupPartition, name: str = "a", group_id: str = "g") -> Identity:
    """A member of a stable group."""
    given = await partition.join("", group_id, new=name)
    assert given == Again(name)
    joined = await partition.join(name, group_id)
    assert isinstance(joined, Joined)
    identity = Identity(member_id=name, generation=joined.generation)
    _, synced = partition.shard.call(
        group_id,
        lambda group, call: sync(
            group,
            SyncRequest(identity=identity, assignments=((name, b"all"),)),
            call=call,
            now_s=partition.clock.monotonic(),
            limits=LIMITS,
        ),
    )
    assert await synced == Synced(protocol_type="consumer", protocol="range", assignment=b"all")
    return identity


async def test_an_offset_is_shown_when_it_is_committed_and_in_the_order_of_the_log() -> None:
    partition = GroupPartition()
    partition.outcomes = asyncio.Queue()
    answers = [partition.commit(1)]
    await settle()
    answers += [partition.commit(offset) for offset in (2, 3)]
    assert partition.offset() is None
    partition.outcomes.put_nowait(COMMITTED)
    await settle()
    assert (partition.offset(), [one.done() for one in answers]) == (1, [True, False, False])
    partition.outcomes.put_nowait(COMMITTED)
    await settle()
    assert partition.offset() == 3
    assert len(partition.batches) == 2, "what came meanwhile went together"


async def test_what_was_not_written_is_answered_so_and_what_waits_as_well() -> None:
    partition = GroupPartition()
    await partition.commit(1)
    partition.outcomes = asyncio.Queue()
    answers = [partition.commit(2), partition.commit(3)]
    partition.outcomes.put_nowait(OwnAppend(code=errors_pb2.ERROR_CODE_KAFKA_STORAGE_ERROR, message="disk"))
    await settle()
    for answer in answers:
        with pytest.raises(RegnumError):
            await answer
    assert partition.offset() == 1
    assert len(partition.failures) == 1
    assert (await partition.following()).offsets.of("g")[Place("t", 0)].offset == 1


async def test_a_generation_is_told_to_nobody_before_it_is_on_record() -> None:
    partition = GroupPartition()
    assert await partition.join("", new="a") == Again("a")
    partition.outcomes = asyncio.Queue()
    joining = partition.join("a")
    await settle()
    assert not joining.done()
    partition.outcomes.put_nowait(COMMITTED)
    assert isinstance(await joining, Joined)


async def test_the_next_coordinator_goes_on_where_this_one_was() -> None:
    partition = GroupPartition()
    identity = await member_of(partition)
    await partition.commit(5, who=identity)
    following = await partition.following()
    group = following.groups["g"]
    assert (group.state, group.generation, group.leader) == (GroupState.STABLE, 1, "a")
    assert group.members["a"].assignment == b"all"
    partition.shard = following
    assert await partition.commit(6, who=identity) == Done()
    refused = await partition.commit(4, who=replace(identity, generation=0))
    assert isinstance(refused, Refusal)
    assert partition.offset() == 6


async def test_a_generation_without_assignments_outlives_its_coordinator_too() -> None:
    partition = GroupPartition()
    await partition.join("", new="a")
    await partition.join("a")
    partition.shard = await partition.following()
    assert partition.shard.groups["g"].state is GroupState.COMPLETING_REBALANCE
    partition.clock.skip(21.0)
    await partition.shard.look()
    assert partition.shard.groups["g"].state is GroupState.EMPTY, "who does not ask for an assignment is not waited for"


async def test_silence_ends_a_membership_and_a_heartbeat_prolongs_it() -> None:
    partition = GroupPartition()
    identity = await member_of(partition)

    def beat() -> Answer:
        now_s = partition.shard.time.now_s
        return partition.shard.beat("g", lambda group, call: heartbeat(group, identity, call=call, now_s=now_s))

    for _ in range(4):
        partition.clock.skip(9.0)
        await partition.shard.look()
        assert beat() == Done()
    partition.clock.skip(10.5)
    await partition.shard.look()
    assert isinstance(beat(), Refusal)
    assert partition.shard.groups["g"].state is GroupState.EMPTY


async def test_offsets_are_kept_while_there_are_members_and_for_a_week_after() -> None:
    partition = GroupPartition()
    identity = await member_of(partition)
    await partition.commit(5, who=identity)
    await partition.commit(7, group_id="simple")
    partition.clock.skip(9.0)
    await partition.expire_offsets()
    # Ten days later the member is still alive; the other group never had one.
    partition.clock.skip(10 * DAY_MS / 1000)
    group = partition.shard.groups["g"]
    alive = replace(group.members["a"], deadline_s=partition.clock.monotonic() + 10.0)
    partition.shard.groups["g"] = replace(group, members=group.members.set("a", alive))
    await partition.expire_offsets()
    await settle()
    assert (partition.offset(), partition.offset("simple")) == (5, None)
    assert "simple" not in partition.shard.groups
    partition.clock.skip(11.0)
    await partition.shard.look()
    assert partition.shard.groups["g"].state is GroupState.EMPTY
    await partition.expire_offsets()
    await settle()
    assert partition.offset() == 5, "a week from when it became empty, not from the commit"
    partition.clock.skip(7 * DAY_MS / 1000 + 1)
    await partition.expire_offsets()
    await settle()
    assert partition.offset() is None
    assert not partition.shard.groups
    assert not (await partition.following()).groups
    assert partition.shard.size_bytes == 0


async def test_a_group_that_is_empty_and_has_no_offsets_is_forgotten_at_the_next_pass() -> None:
    partition = GroupPartition()
    identity = await member_of(partition, group_id="stays")
    for group_id in ("over", "awaited", "reading"):
        await member_of(partition, group_id=group_id)
    await partition.commit(5, group_id="reading", who=identity)
    partition.clock.skip(9.0)
    now_s = partition.shard.time.now_s
    partition.shard.beat("stays", lambda group, call: heartbeat(group, identity, call=call, now_s=now_s))
    partition.clock.skip(2.0)
    await partition.shard.look()
    assert partition.shard.groups["over"].state is GroupState.EMPTY
    assert await partition.join("", "awaited", new="b") == Again("b")
    await partition.expire_offsets()
    await settle()
    assert set(partition.shard.groups) == {"stays", "awaited", "reading"}, "no members, nobody expected, no offsets"
    assert set((await partition.following()).groups) == {"stays", "awaited", "reading"}
    joined = await partition.join("b", "awaited")
    assert isinstance(joined, Joined)
    assert joined.generation == 3, "one that has just become empty goes on where it was"
    await member_of(partition, "c", "over")
    assert partition.shard.groups["over"].generation == 1
    late = partition.shard.beat("over", lambda group, call: heartbeat(group, identity, call=call, now_s=now_s))
    assert isinstance(late, Refusal)
    assert late.error is GroupError.UNKNOWN_MEMBER_ID, "a member of the former generation 1 is none of this one"


async def test_who_joins_while_an_empty_group_is_forgotten_is_not_forgotten_with_it() -> None:
    partition = GroupPartition()
    await member_of(partition)
    partition.clock.skip(11.0)
    await partition.shard.look()
    await settle()
    partition.outcomes = asyncio.Queue()
    await partition.expire_offsets()
    given = partition.join("", new="b")
    partition.outcomes.put_nowait(COMMITTED)
    assert await given == Again("b")
    joining = partition.join("b")
    partition.outcomes.put_nowait(COMMITTED)
    assert isinstance(await joining, Joined)
    assert set((await partition.following()).groups["g"].members) == {"b"}


async def test_who_comes_while_a_group_is_forgotten_is_not_forgotten_with_it() -> None:
    partition = GroupPartition()
    await partition.commit(5)
    partition.outcomes = asyncio.Queue()
    deleted, committed = partition.shard.delete("g"), partition.commit(9)
    partition.outcomes.put_nowait(COMMITTED)
    partition.outcomes.put_nowait(COMMITTED)
    assert await deleted == Done()
    assert await committed == Done()
    assert partition.offset() == 9
    assert "g" in partition.shard.groups
    assert (await partition.following()).offsets.of("g")[Place("t", 0)].offset == 9


async def test_groups_members_rebalances_and_commits_are_counted() -> None:
    partition = GroupPartition()
    identity = await member_of(partition)
    await partition.commit(5, who=identity)
    await partition.commit(6, who=identity)
    numbers = {one.instrument: one.numbers[0][1] for one in partition.metrics.read() if one.numbers}
    assert numbers == {instruments.GROUP_REBALANCES: 1, instruments.OFFSETS_COMMITTED: 2}
    assert (len(partition.shard.groups), partition.shard.members) == (1, 1)
    assert (await partition.following()).members == 1
    partition.clock.skip(11.0)
    await partition.shard.look()
    assert partition.shard.members == 0
    numbers = {one.instrument: one.numbers[0][1] for one in partition.metrics.read() if one.numbers}
    assert numbers[instruments.GROUP_REBALANCES] == 1, "a group that became empty is no rebalance"


def compacted(records: Sequence[Record], *, tombstones: bool) -> list[Record]:
    """What compaction leaves: the newest record of each key, and tombstones for a while."""
    newest = {record.key: record.offset for record in records}
    return [one for one in records if newest[one.key] == one.offset and (tombstones or one.value is not None)]


@pytest.mark.parametrize("tombstones", [True, False])
async def test_a_compacted_partition_says_the_same(tombstones: bool) -> None:
    partition = GroupPartition()
    identity = await member_of(partition)
    for offset in range(5):
        await partition.commit(offset, who=identity)
        await partition.commit(10 * offset, group_id="simple")
        await partition.commit(1, group_id=f"over{offset}")
    for offset in range(4):
        await partition.shard.delete(f"over{offset}")
    await partition.commit(7, group_id="over0")
    await member_of(partition, "z", "left")
    partition.clock.skip(11.0)
    await partition.shard.look()
    while not partition.shard.log.is_idle:
        await settle()
    whole = [record for batch in partition.batches for record in read_records(batch)]
    records = [replace(record, offset=position) for position, record in enumerate(whole)]
    assert len({record.key for record in records}) == 13, "a key for each group, and for each place of its offsets"
    left = compacted(records, tombstones=tombstones)
    assert len(left) < len(records) / 2
    of_all, of_those_left = await partition.loaded(records), await partition.loaded(left)
    assert of_those_left.offsets.by_group == of_all.offsets.by_group
    assert of_those_left.groups == of_all.groups
    assert {*of_all.groups} == {"g", "simple", "over0", "over4", "left"}
    assert of_those_left.size_bytes == of_all.size_bytes
