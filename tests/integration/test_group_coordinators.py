"""Coordinators of groups in a real cluster: found, killed, and what they had acknowledged."""

import asyncio
from typing import Any

import grpc
import pytest
from regnum.broker.v1 import group_pb2, group_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_client import Admin
from regnum_local.cluster import LocalCluster
from regnum_model.nodes import Address
from regnum_model.topics import OFFSETS_TOPIC
from regnum_service.channel import open_channel
from regnum_service.errors import RegnumError
from regnum_service.status import from_rpc_error
from regnum_testing.waiting import DEADLINE_S, eventually, within

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.asyncio(loop_scope="module")]

CALL_S = 5.0
GROUPS = [f"group-{number}" for number in range(12)]
"""They are spread over all partitions."""


KILLS = 5
"""Coordinators that are killed."""


class Calls:
    """GroupService of any broker."""

    def __init__(self) -> None:
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()

    async def ask(self, address: str, method: str, request: Any) -> Any:
        """Raises RegnumError."""
        if address not in self._channels:
            self._channels[address] = open_channel(Address.parse(address))
        stub: Any = group_pb2_grpc.GroupServiceStub(self._channels[address])
        try:
            return await getattr(stub, method)(request, timeout=CALL_S)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None

    async def coordinators(self, bootstrap: str) -> dict[str, str]:
        """Addresses by group, of those that have a coordinator."""
        answer = await self.ask(bootstrap, "FindCoordinator", group_pb2.FindCoordinatorRequest(group_ids=GROUPS))
        return {
            one.group_id: f"{one.client.host}:{one.client.port}" for one in answer.coordinators if not one.error_code
        }


class Committer:
    """Commits one offset after another of one group, wherever its coordinator is."""

    def __init__(self, calls: Calls, bootstrap: tuple[str, ...], group_id: str) -> None:
        self.group_id = group_id
        self.acknowledged = 0
        """The highest offset that a coordinator has confirmed."""
        self.asked = 0
        self._calls = calls
        self._bootstrap = bootstrap
        self._turn = 0

    async def run(self) -> None:
        while True:
            self.asked += 1
            offset = group_pb2.OffsetToCommit(topic="t", partition=0, offset=self.asked)
            request = group_pb2.OffsetCommitRequest(group_id=self.group_id, generation_id=-1, offsets=[offset])
            answer = await self.somehow("OffsetCommit", request)
            assert [result.error_code for result in answer.results] == [errors_pb2.ERROR_CODE_NONE]
            self.acknowledged = self.asked

    async def committed(self) -> int:
        answer = await self.somehow("OffsetFetch", group_pb2.OffsetFetchRequest(group_id=self.group_id))
        return answer.offsets[0].offset if answer.offsets else 0

    async def coordinator(self) -> str:
        """Address of the group's coordinator."""
        found: list[str] = []

        async def named() -> bool:
            try:
                places = await self._calls.coordinators(self._bootstrap[0])
            except RegnumError as error:
                if not error.traits.retriable:
                    raise
                return False
            found.extend(place for group_id, place in places.items() if group_id == self.group_id)
            return bool(found)

        await eventually(named, what=f"a coordinator of {self.group_id}")
        return found[0]

    async def somehow(self, method: str, request: Any) -> Any:
        """Ask until a coordinator answers."""
        answers: list[Any] = []

        async def answered() -> bool:
            self._turn += 1
            try:
                places = await self._calls.coordinators(self._bootstrap[self._turn % len(self._bootstrap)])
                if self.group_id in places:
                    answers.append(await self._calls.ask(places[self.group_id], method, request))
            except RegnumError as error:
                if not error.traits.retriable:
                    raise
            return bool(answers)

        await eventually(answered, what=f"an answer to {method} of {self.group_id}")
        return answers[0]


class Reader:
    """Fetches a group's offset again and again, and judges it by what was acknowledged before it asked."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self.fetched = 0
        """How often."""

    async def run(self) -> None:
        highest = 0
        while True:
            acknowledged = self._committer.acknowledged
            offset = await self._committer.committed()
            assert offset >= acknowledged, f"{acknowledged} was acknowledged, and {offset} is shown"
            assert offset >= highest, f"{highest} was shown before, and {offset} is now"
            assert offset <= self._committer.asked, "nobody committed that"
            highest = offset
            self.fetched += 1


async def test_brokers_agree_on_coordinators_and_the_topic_is_created_once(cluster: LocalCluster) -> None:
    calls = Calls()

    async def agreed() -> bool:
        try:
            found = await asyncio.gather(*(calls.coordinators(one) for one in cluster.bootstrap for _ in range(5)))
        except RegnumError as error:
            if error.code != errors_pb2.ERROR_CODE_COORDINATOR_NOT_AVAILABLE:
                raise
            return False
        return len(found[0]) == len(GROUPS) and all(one == found[0] for one in found)

    await eventually(agreed, what="all brokers name the same coordinators")
    await calls.close()
    async with Admin(list(cluster.bootstrap)) as admin:
        described = await admin.describe_topic(OFFSETS_TOPIC)
    assert len(described.partitions) == 8


async def test_committed_offsets_never_go_back_when_coordinators_are_killed(cluster: LocalCluster) -> None:
    calls = Calls()
    committers = [Committer(calls, cluster.bootstrap, group_id) for group_id in GROUPS[:4]]
    readers = [Reader(one) for one in committers]
    running = [asyncio.create_task(one.run()) for one in (*committers, *readers)]

    async def all_go_on() -> None:
        before = {one: one.acknowledged for one in committers} | {one: one.fetched for one in readers}

        async def moved() -> bool:
            for task in running:
                if task.done():
                    task.result()
            return all(one.acknowledged > before[one] for one in committers) and all(
                one.fetched > before[one] for one in readers
            )

        await eventually(moved, what="every group commits, and is read")

    try:
        await within(all_go_on(), 2 * DEADLINE_S)
        for number in range(KILLS):
            coordinator = await within(committers[number % len(committers)].coordinator(), DEADLINE_S)
            victim = f"broker-{cluster.bootstrap.index(coordinator) + 1}"
            await cluster.kill(victim)
            await within(all_go_on(), 2 * DEADLINE_S)
            await cluster.restart(victim)
            await cluster.wait_healthy(victim)
            await within(all_go_on(), 2 * DEADLINE_S)
    finally:
        for task in running:
            task.cancel()
        ended = await asyncio.gather(*running, return_exceptions=True)
    assert [one for one in ended if not isinstance(one, asyncio.CancelledError)] == []
    for one in committers:
        assert one.acknowledged <= await within(one.committed(), DEADLINE_S) <= one.asked
    await calls.close()
