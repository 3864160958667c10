"""Comparing what all processes hold of the cluster's metadata, and how far they are.

Algorithm: the controller says what it published last, as a digest; metadata processes and brokers are asked for theirs
at that version or later. While the cluster changes, answers are of different versions: then everybody is asked again,
and what differs at the same version counts. Of a process that differs the sections are compared, of those the topics,
of these the states.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum.metadata.v1.image_pb2 import DescribeImageRequest, DescribeImageResponse
from regnum.types.v1.types_pb2 import PartitionState, RequestHeader
from regnum_model.nodes import Address
from regnum_service.errors import RegnumError

from regnum_client.admin.metadata.comparison import (
    Difference,
    differing_sections,
    differing_topics,
    head_differences,
    topic_differences,
)
from regnum_client.admin.session import AdminSession, call_s
from regnum_client.cluster.connections import call

WAIT_S: Final = 5.0
"""How long processes may take to hold what was published, unless told otherwise."""
ROUND_WAIT_MS: Final = 1_000
"""How long a process waits for a version before it answers."""
LOOK_S: Final = 0.1
"""Between two rounds."""
TOPICS_NAMED: Final = 20
"""Topics whose differences are named one by one, of each process."""
CALL_S: Final = 30.0
"""One question: a digest from nothing takes some seconds in a large cluster."""

Topic = tuple[str, dict[int, PartitionState]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldBy:
    """What one process holds."""

    process: str
    """``controller``, ``metadata 1``, ``broker 3``."""
    address: Address
    """Its listener for clients."""
    version: int
    """Version of what it holds; 0: nothing, or it did not answer."""
    digest: str
    """In hexadecimal digits; empty: it did not answer."""
    equal: bool
    """Whether it holds what the controller published."""
    problem: str
    """Why it could not be compared; empty: it could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataComparison:
    """Of all processes."""

    version: int
    """What the controller published last."""
    processes: tuple[HeldBy, ...]
    """The controller, metadata processes, brokers."""
    differences: tuple[Difference, ...]
    """What differs, of at most ``TOPICS_NAMED`` topics of each process."""

    @property
    def equal(self) -> bool:
        """Whether all hold the same."""
        return all(one.equal for one in self.processes)


class MetadataAdmin(AdminSession):
    """Metadata as the processes hold it."""

    async def describe_propagation(self) -> admin_pb2.DescribePropagationResponse:
        """How far metadata processes and brokers are. Raises NOT_CONTROLLER when there is no controller."""
        search = self._search()
        request = admin_pb2.DescribePropagationRequest(header=RequestHeader(client_id=self._client_id))
        while True:
            address = await search.address()
            try:
                return await call(
                    self._connections.admin(address).DescribePropagation, request, timeout_s=call_s(search)
                )
            except RegnumError as error:
                await search.failed(address, error)

    async def compare_metadata(self, *, wait_s: float = WAIT_S, recompute: bool = False) -> MetadataComparison:
        """Whether all processes hold what the controller published; waited for, and what differs then.

        Raises RegnumError when the controller does not answer.

        Args:
            wait_s: how long they may take.
            recompute: let every process go through all it holds, whatever it has computed before.
        """
        deadline_s = self._clock.monotonic() + wait_s
        while True:
            comparison = await self._compared(recompute=recompute, name=self._clock.monotonic() >= deadline_s)
            if comparison.equal or (self._clock.monotonic() >= deadline_s and comparison.differences):
                return comparison
            if self._clock.monotonic() >= deadline_s + wait_s:
                return comparison
            await self._clock.sleep(LOOK_S)

    async def _compared(self, *, recompute: bool, name: bool) -> MetadataComparison:
        """One round; ``name``: say what differs."""
        propagation = await self.describe_propagation()
        view = await self._open().newer_than(self._clock.monotonic(), timeout_s=self._timeout_s)
        processes = [
            *((f"metadata {one.metadata_id}", _address(one)) for one in propagation.metadata_processes),
            *((f"broker {id}", broker.address) for id, broker in sorted(view.brokers.items())),
        ]
        at, published = await self._published(recompute=recompute)
        answers = await asyncio.gather(
            *(self._asked(address, published.version, recompute=recompute) for _, address in processes)
        )
        held = [
            HeldBy(
                process="controller",
                address=at,
                version=published.version,
                digest=published.digest.hex(),
                equal=True,
                problem="",
            )
        ]
        differences: list[Difference] = []
        for (process, address), answer in zip(processes, answers, strict=True):
            held.append(_held(process, address, answer, published))
            if name and not isinstance(answer, RegnumError) and not held[-1].equal:
                try:
                    differences.extend(await self._differences(process, address, at, answer, published))
                except RegnumError as error:
                    differences.append(
                        Difference(process=process, field="not compared", held=error.message, published="")
                    )
        return MetadataComparison(version=published.version, processes=tuple(held), differences=tuple(differences))

    async def _published(self, *, recompute: bool) -> tuple[Address, DescribeImageResponse]:
        search = self._search()
        request = DescribeImageRequest(
            header=RequestHeader(client_id=self._client_id), sections=True, recompute=recompute
        )
        while True:
            address = await search.address()
            try:
                return address, await call(self._connections.images(address).DescribeImage, request, timeout_s=CALL_S)
            except RegnumError as error:
                await search.failed(address, error)

    async def _asked(self, address: Address, version: int, *, recompute: bool) -> DescribeImageResponse | RegnumError:
        request = DescribeImageRequest(
            header=RequestHeader(client_id=self._client_id),
            version=version,
            wait_ms=ROUND_WAIT_MS,
            recompute=recompute,
            sections=True,
        )
        try:
            return await call(self._connections.images(address).DescribeImage, request, timeout_s=CALL_S)
        except RegnumError as error:
            return error

    async def _differences(
        self, process: str, address: Address, at: Address, held: DescribeImageResponse, published: DescribeImageResponse
    ) -> list[Difference]:
        """What differs. Raises RegnumError."""
        found: list[Difference] = []
        if held.head_digest != published.head_digest:
            heads = [await self._states(one, ["?"]) for one in (address, at)]
            found.extend(head_differences(process, heads[0][0], heads[1][0]))
        sections = differing_sections(held, published)
        if sections:
            topics = [await self._topics(one, sections) for one in (address, at)]
            for topic in islice(differing_topics(topics[0], topics[1]), TOPICS_NAMED):
                mine, theirs = [(await self._states(one, [topic]))[1].get(topic) for one in (address, at)]
                found.extend(topic_differences(process, topic, mine, theirs))
        return found

    async def _topics(self, address: Address, sections: Sequence[int]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        request = DescribeImageRequest(topics_of_sections=sections)
        while True:
            answer = await call(self._connections.images(address).DescribeImage, request, timeout_s=CALL_S)
            found.update((one.name, one.digest) for one in answer.topic_digests)
            if not answer.more_topics:
                return found
            request.after_topic = answer.topic_digests[-1].name

    async def _states(self, address: Address, topics: Iterable[str]) -> tuple[DescribeImageResponse, dict[str, Topic]]:
        """The last answer, and what is held of these topics."""
        found: dict[str, Topic] = {}
        request = DescribeImageRequest(topics=topics)
        while True:
            answer = await call(self._connections.images(address).DescribeImage, request, timeout_s=CALL_S)
            for topic in answer.topics:
                found.setdefault(topic.name, (topic.topic_id, {}))[1].update(
                    (state.partition, state) for state in topic.partitions
                )
            if not answer.next_partition:
                return answer, found
            request.from_partition = answer.next_partition


def _held(
    process: str, address: Address, answer: DescribeImageResponse | RegnumError, published: DescribeImageResponse
) -> HeldBy:
    if isinstance(answer, RegnumError):
        return HeldBy(process=process, address=address, version=0, digest="", equal=False, problem=answer.message)
    same = answer.version == published.version
    equal = same and answer.digest == published.digest
    problem = "" if equal else "it holds something else" if same else "it holds another version"
    return HeldBy(
        process=process,
        address=address,
        version=answer.version,
        digest=answer.digest.hex(),
        equal=equal,
        problem=problem,
    )


def _address(one: admin_pb2.MetadataProcessLag) -> Address:
    return Address(host=one.client.host, port=one.client.port)
