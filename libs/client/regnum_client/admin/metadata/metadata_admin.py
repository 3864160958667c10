"""Comparing what all processes hold of the cluster's metadata, and how far they are.

Algorithm: the controller says what it published last, as a digest; metadata processes and brokers are asked for theirs
at that version or later. While the cluster changes, a process may be further than the controller said: then the
controller is asked again, and only what both hold at one version is compared (``common_versions``). Of a process that
differs the sections are compared, of those the topics, of these the states; those answers are of any version, so what
differs is looked for twice, and only what differs both times in the same way is named.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum.metadata.v1.image_pb2 import DescribeImageRequest, DescribeImageResponse
from regnum.types.v1.types_pb2 import PartitionState, RequestHeader
from regnum_model.nodes import Address
from regnum_service.errors import RegnumError

from regnum_client.admin.metadata.common_versions import Ask, Pair, pairs
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
        fresh = set(processes) if recompute else set()

        def asked(process: tuple[str, Address]) -> Ask:
            async def ask(version: int) -> DescribeImageResponse | RegnumError:
                # What was computed from nothing once goes on from there.
                deep = process in fresh
                fresh.discard(process)
                return await self._asked(process[1], version, recompute=deep)

            return ask

        async def again(version: int) -> DescribeImageResponse:
            return (await self._published(version=version))[1]

        found = await pairs(again, {one[0]: asked(one) for one in processes}, published)
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
        for process, address in processes:
            pair = found[process]
            held.append(_held(process, address, pair))
            if name and pair.met and not held[-1].equal:
                differences.extend(await self._named(process, address, at, pair))
        return MetadataComparison(version=published.version, processes=tuple(held), differences=tuple(differences))

    async def _published(self, *, recompute: bool = False, version: int = 0) -> tuple[Address, DescribeImageResponse]:
        search = self._search()
        request = DescribeImageRequest(
            header=RequestHeader(client_id=self._client_id),
            version=version,
            wait_ms=ROUND_WAIT_MS,
            sections=True,
            recompute=recompute,
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

    async def _named(self, process: str, address: Address, at: Address, pair: Pair) -> list[Difference]:
        """That it differs, and in what, as far as that stands still."""
        if isinstance(pair.held, RegnumError):
            return []
        whole = Difference(
            process=process,
            field=f"digest of version {pair.held.version}",
            held=pair.held.digest.hex(),
            published=pair.published.digest.hex(),
        )
        try:
            before = await self._differences(process, address, at, pair.held, pair.published)
            after = await self._differences(process, address, at, pair.held, pair.published)
        except RegnumError as error:
            return [whole, Difference(process=process, field="not compared", held=error.message, published="")]
        return [one for one in after if one in before] or [whole]

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


def _held(process: str, address: Address, pair: Pair) -> HeldBy:
    answer, published = pair.held, pair.published
    if isinstance(answer, RegnumError):
        return HeldBy(process=process, address=address, version=0, digest="", equal=False, problem=answer.message)
    equal = pair.met and answer.digest == published.digest
    if equal:
        problem = ""
    elif pair.met:
        problem = "it holds something else"
    elif pair.is_ahead:
        problem = "not compared: the cluster changed whenever the controller was asked for the same version; ask again"
    else:
        problem = "it holds another version"
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
