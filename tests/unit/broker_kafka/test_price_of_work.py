"""What a client of Kafka sends cheaply and has a broker do dearly: it pays for it, and others are served meanwhile.

| attack | shown by |
|---|---|
| batches of two kilobytes that unpack to 62 MB | test_what_unpacks_to_much_is_refused_and_holds_nobody_up |
| answers that are never read | test_an_answer_that_is_not_read_costs_its_connection...; test_door: ..._has_left... |
| client ids as long as they may be | test_a_client_id_takes_no_more_than_a_name_may_have |
| arrays of repeats | test_faults_of_others: ..._named_again_and_again...; `python -m regnum_testing.kafka_fuzz dear` |
| thousands of small requests | test_connection: ..._leave_turns_to_others |
| connections that say nothing | test_crowd, test_listener_tls |
"""

import asyncio
import struct
import tracemalloc
from typing import Any

from regnum_broker.kafka.listener import KafkaListener
from regnum_broker.servicers.group import NAME_LENGTH_MAX
from regnum_kafka_wire.apis import Buffers
from regnum_kafka_wire.frames import Head
from regnum_model.nodes import Address
from regnum_model.shares import Shares
from regnum_service.access.listener import ListenerAccess, ListenerLimits
from regnum_service.clock import SystemClock
from regnum_service.limits.budget import Budget
from regnum_service.limits.held_bytes import HeldBytes, Purpose
from regnum_service.limits.unread_answers import PART_BYTES, TAKEN_S_MAX
from regnum_service.supervisor import Supervisor
from regnum_testing.batches import batch_of
from regnum_testing.clock import FakeClock
from regnum_testing.kafka_world import KafkaWorld, connected, made
from regnum_testing.waiting import eventually, until, within

MIB = 1024 * 1024
NONE, TOO_LARGE = 0, 10
BOMBS = 3


def produced(topic: str, batch: bytes) -> dict[str, Any]:
    topics = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
    return {"transactional_id": None, "acks": -1, "timeout": 20_000, "topic_data": topics}


def test_what_unpacks_to_much_is_refused_and_holds_nobody_up(world: KafkaWorld) -> None:
    bomb = batch_of(bytes(62_000_000), codec="zstd")
    assert len(bomb) < 3_000
    small = batch_of(b"small")

    def told(answer: Any) -> tuple[int, int]:
        (one,) = answer.responses[0].partition_responses
        return int(one.error_code), one.base_offset

    async def work() -> tuple[int, list[int], int]:
        await made(world, "bombs", 2)
        async with (
            connected(world.cluster.kafka, "attacker") as attacker,
            connected(world.cluster.kafka, "victim") as victim,
        ):
            numbers = [attacker.send("produce", 9, **produced("bombs", bomb)) for _ in range(BOMBS)]
            _, offset = told(await victim.ask("produce", 9, **produced("bombs", small)))
            refused = [told(await attacker.receive("produce", 9, number))[0] for number in numbers]
            return offset, refused, told(await victim.ask("produce", 9, **produced("bombs", small)))[1]

    assert world.run(work()) == (0, [TOO_LARGE] * BOMBS, 1), "nothing of them was appended"


def test_a_client_id_takes_no_more_than_a_name_may_have(world: KafkaWorld) -> None:
    long = "x" * 32_000
    joining = {
        "group_id": "long-ids",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
    }

    async def work() -> tuple[str, Any]:
        async with connected(world.cluster.kafka, long) as member:
            name = ""

            async def named() -> bool:
                nonlocal name
                await member.ask("find_coordinator", 3, key="long-ids", key_type=0)
                name = str((await member.ask("join_group", 5, **joining, member_id="")).member_id)
                return bool(name)

            await eventually(named, what="the coordinator of the group")
            await member.ask("join_group", 5, **joining, member_id=name)
            how = {"include_authorized_operations": False}
            return name, await member.ask("describe_groups", 4, groups=["long-ids"], **how)

    async def forgotten() -> int:
        for number in range(80):
            async with connected(world.cluster.kafka, f"{number:04d}{long}") as client:
                await client.ask("list_groups", 2)
        del client
        return tracemalloc.get_traced_memory()[0]

    name, described = world.run(work())
    assert len(name) <= NAME_LENGTH_MAX
    (member,) = described.groups[0].members
    assert member.client_id == long[:NAME_LENGTH_MAX]
    tracemalloc.start()
    try:
        assert world.run(forgotten()) < MIB, "nothing remembers the ids of clients that are gone"
    finally:
        tracemalloc.stop()


class Door:
    """Answers with much that its reader is to take, as the real one does."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget

    def ends_with_its_client(self, _head: Head) -> bool:
        return True

    def takes_together(self, _head: Head) -> bool:
        return False

    async def together(self, asked: Any) -> Any:
        raise NotImplementedError

    async def answer(self, _frame: memoryview, context: Any) -> Buffers | None:
        size = 16 * PART_BYTES
        holding = self.budget.holding(context.call, Purpose.FETCH)
        holding.grant(size, size)
        context.call.at_end(holding.close)
        context.call.at_end(self.budget.unread.begin(context.call.peer, size).close)
        return [struct.pack(">i", size), bytes(size)]


async def test_an_answer_that_is_not_read_costs_its_connection_where_others_wait_for_memory() -> None:
    clock, supervisor = FakeClock(), Supervisor("test")
    budget = Budget(HeldBytes(Shares(total_max=64 * MIB, connection_max=64 * MIB)), clock)
    listener = KafkaListener(
        Address(host="127.0.0.1", port=0),
        door=Door(budget),
        budget=budget,
        access=ListenerAccess(limits=ListenerLimits()),
        request_bytes_max=MIB,
        clock=SystemClock(),
        supervisor=supervisor,
    )
    await listener.start()
    _, writer = await asyncio.open_connection("127.0.0.1", listener.address.port)
    writer.write(struct.pack(">ihhih", 10, 1, 11, 1, 0))
    await until(lambda: budget.held.total == 16 * PART_BYTES)
    await clock.advance(17 * TAKEN_S_MAX)
    assert listener.connections == 1, "others lack nothing"
    budget.held.refuse("ipv4:10.0.0.2:1", Purpose.PRODUCE)
    await clock.advance(TAKEN_S_MAX)
    await until(lambda: listener.connections == 0)
    await until(lambda: budget.held.total == 0)
    writer.transport.abort()
    await within(listener.stop())
    await supervisor.unwind()
    assert supervisor.failure is None
