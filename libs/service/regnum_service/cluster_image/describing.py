"""ImageService, for every process that holds an image: controller, metadata processes and brokers."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from regnum.metadata.v1 import image_pb2
from regnum.types.v1 import errors_pb2, types_pb2

from regnum_service.clock import Clock
from regnum_service.cluster_image.digest import SECTIONS, Digests, ImageDigest, to_bytes
from regnum_service.cluster_image.held import HeldImage, to_wire
from regnum_service.encoding import Encoding
from regnum_service.errors import RegnumError
from regnum_service.slices import slices

WAIT_MS_MAX: Final = 10_000
"""Longest wait for a version."""

LOOK_S: Final = 0.02
"""Between two looks at the version that is waited for."""

TOPICS_MAX: Final = 10_000
"""Digests of topics in one answer."""

STATES_TOPICS_MAX: Final = 100
"""Topics whose states one answer has."""

STATES_MAX: Final = 10_000
"""States of partitions in one answer, about 1 MB."""

Context = Any
"""grpc.aio.ServicerContext, whose stubs are generic and whose class is not."""


class ImageServicer:
    """Compares nothing itself: says what is held here, and in how many bytes the asker wants it."""

    def __init__(self, held: Callable[[], HeldImage], digest: ImageDigest, clock: Clock) -> None:
        """Only assigns; ``held`` is the image as of now and ``digest`` its own."""
        self._held: Final = held
        self._digest: Final = digest
        self._clock: Final = clock

    async def DescribeImage(  # noqa: N802 - gRPC's name
        self,
        request: image_pb2.DescribeImageRequest,
        context: Context,  # noqa: ARG002
    ) -> bytes:
        """Digests and states: a DescribeImageResponse."""
        _check(request)
        await self._wait(request)
        wanted = frozenset(request.topics_of_sections)
        digests = await self._digest.digests(topics_of=wanted, recompute=request.recompute)
        answer = Encoding(_head(digests, sections=request.sections), size=STATES_MAX // 10)
        if wanted:
            names = await _first_names(digests.topics, request.after_topic)
            for name in names[:TOPICS_MAX]:
                answer.piece.topic_digests.add(name=name, digest=to_bytes(digests.topics[name]))
                await answer.took()
            answer.piece.more_topics = len(names) > TOPICS_MAX
        if request.topics:
            answer.piece.brokers.extend(digests.image.brokers)
            answer.piece.controller.CopyFrom(digests.image.controller)
            await _add_states(answer, digests.image, request)
        return answer.whole()

    async def _wait(self, request: image_pb2.DescribeImageRequest) -> None:
        until_s = self._clock.monotonic() + min(request.wait_ms, WAIT_MS_MAX) / 1000
        while to_wire(self._held().position) < request.version and self._clock.monotonic() < until_s:
            await self._clock.sleep(LOOK_S)


def _check(request: image_pb2.DescribeImageRequest) -> None:
    """Raises RegnumError."""
    if len(request.topics) > STATES_TOPICS_MAX:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST,
            f"{len(request.topics)} topics in one question; ask for at most {STATES_TOPICS_MAX}",
        )
    if len(request.topics_of_sections) > SECTIONS:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST,
            f"{len(request.topics_of_sections)} sections in one question; there are {SECTIONS}, name each once",
        )
    if wrong := [number for number in request.topics_of_sections if not 0 <= number < SECTIONS]:
        raise RegnumError(
            errors_pb2.ERROR_CODE_INVALID_REQUEST, f"there is no section {wrong[0]}; they go from 0 to {SECTIONS - 1}"
        )


async def _first_names(topics: Iterable[str], after: str) -> list[str]:
    """The first names above that one, in order, and one more than an answer has."""
    first: list[str] = []
    async for part in slices(topics, TOPICS_MAX):
        first = sorted((*first, *(name for name in part if name > after)))[: TOPICS_MAX + 1]
    return first


def _head(digests: Digests, *, sections: bool) -> image_pb2.DescribeImageResponse:
    image = digests.image
    return image_pb2.DescribeImageResponse(
        version=to_wire(image.position),
        digest=to_bytes(digests.whole),
        head_digest=to_bytes(digests.head),
        section_digests=list(map(to_bytes, digests.sections)) if sections else (),
        topic_count=len(image.topics),
        cluster_id=image.cluster_id,
    )


async def _add_states(
    answer: Encoding[image_pb2.DescribeImageResponse], image: HeldImage, request: image_pb2.DescribeImageRequest
) -> None:
    left = STATES_MAX
    for name in sorted(set(request.topics)):
        topic = image.topics.get(name)
        if topic is None:
            continue
        if left <= 0:
            return
        numbers = sorted(number for number in topic.partitions if number >= request.from_partition)
        state = types_pb2.TopicState(name=topic.name, topic_id=topic.topic_id)
        state.partitions.extend([topic.partitions[number] for number in numbers[:left]])
        answer.piece.topics.append(state)
        if len(numbers) > left:
            answer.piece.next_partition = numbers[left]
        left -= min(len(numbers), left)
        await answer.took(1 + len(state.partitions))
