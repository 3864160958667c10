"""Asks brokers for pages: any broker may be asked for the next one, for a cursor means the same to all."""

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from typing import Final

from regnum.metadata.v1 import metadata_pb2
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.nodes import Address
from regnum_model.topic_filter import TopicFilter
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_client.admin.describing.topics import ALL, TopicSummary, WholeTopics, filter_to_wire, summaries_of
from regnum_client.admin.session import AdminSession
from regnum_client.cluster.connections import Connections, call
from regnum_client.cluster.enquiry import require_heard
from regnum_client.cluster.metadata import Metadata
from regnum_client.cluster.pace import retry_delay_ms
from regnum_client.cluster.view import TopicView

ANSWER_S: Final = 5.0
"""Deadline of one call."""

NAMES_MAX: Final = 5_000
"""Topics that are named in one call; half of what brokers take."""


class DescribeAdmin(AdminSession):
    """What is there, page by page: for clusters of any size."""

    async def describe_topics(
        self, names: Sequence[str] = (), *, chosen: TopicFilter = ALL, limit: int = 0
    ) -> AsyncGenerator[TopicView, None]:
        """Topics by name with their partitions; those that are named and not known are left out.

        Each as of the moment of its page: a topic that is there throughout is given exactly once, one that comes or
        goes meanwhile may or may not be. With troubles chosen a topic has only the partitions that are in one.

        Args:
            names: their names; empty: all.
            chosen: which of them.
            limit: partitions of a page; 0: as many as brokers like.

        Raises:
            InvalidTopicFilterError: no topic can be chosen so.
            RegnumError: no broker answered in the time of the client.
        """
        for request in _requests(names, chosen, limit, summaries=False):
            whole = WholeTopics()
            while True:
                for view in whole.take(await self._page(request)):
                    yield view
                if whole.cursor is None:
                    break
                request.cursor.CopyFrom(whole.cursor)

    async def summarize_topics(
        self, names: Sequence[str] = (), *, chosen: TopicFilter = ALL, limit: int = 0, first: str = ""
    ) -> AsyncGenerator[tuple[TopicSummary, ...], None]:
        """Counts of topics by name, a page at a time; for the rest see ``describe_topics``.

        The next page is on its way while the caller is at work on one. ``first``: topics before that name are left
        out, whether there is one of it or not.
        """
        for request in _requests(names, chosen, limit, summaries=True):
            if first:
                request.cursor.topic = first
            asked = self._ask_ahead(request)
            try:
                while True:
                    page = await self._tasks.answer_of(asked)
                    more = page.HasField("next_cursor")
                    if more:
                        request.cursor.CopyFrom(page.next_cursor)
                        asked = self._ask_ahead(request)
                    yield summaries_of(page)
                    if not more:
                        break
            finally:
                # The caller has seen enough; the end is waited for, so that nothing is under way when they hang up.
                await self._tasks.end(asked)

    def _ask_ahead(
        self, request: metadata_pb2.DescribeTopicsRequest
    ) -> asyncio.Task[metadata_pb2.DescribeTopicsResponse]:
        return self._tasks.start_question("page of topics", self._page(request))

    async def _page(self, request: metadata_pb2.DescribeTopicsRequest) -> metadata_pb2.DescribeTopicsResponse:
        request.header.client_id = self._client_id
        asking = _Asking(self._open(), self._connections, clock=self._clock, chance=self._chance)
        return await asking.page(request, timeout_s=self._timeout_s)


def _requests(
    names: Sequence[str], chosen: TopicFilter, limit: int, *, summaries: bool
) -> list[metadata_pb2.DescribeTopicsRequest]:
    known = sorted(set(names))
    parts = [known[start : start + NAMES_MAX] for start in range(0, len(known), NAMES_MAX)] or [[]]
    wanted = filter_to_wire(chosen)
    return [
        metadata_pb2.DescribeTopicsRequest(
            header=RequestHeader(), topics=part, filter=wanted, limit=limit, summaries=summaries
        )
        for part in parts
    ]


class _Asking:
    """Gets one page from whichever broker answers and is not behind."""

    def __init__(self, metadata: Metadata, connections: Connections, *, clock: Clock, chance: random.Random) -> None:
        self._metadata: Final = metadata
        self._connections: Final = connections
        self._clock: Final = clock
        self._chance: Final = chance

    async def page(
        self, request: metadata_pb2.DescribeTopicsRequest, *, timeout_s: float
    ) -> metadata_pb2.DescribeTopicsResponse:
        """The page. Raises what the last broker said when none answers in time."""
        began_s = self._clock.monotonic()
        while True:
            answer = await self._round(request, deadline_s=began_s + timeout_s)
            if not isinstance(answer, RegnumError):
                return answer
            trouble_s = self._clock.monotonic() - began_s
            if trouble_s >= timeout_s or not answer.traits.retriable:
                raise answer
            await self._clock.sleep(retry_delay_ms(trouble_s * 1000, self._chance.random()) / 1000)

    async def _round(
        self, request: metadata_pb2.DescribeTopicsRequest, *, deadline_s: float
    ) -> metadata_pb2.DescribeTopicsResponse | RegnumError:
        """Every broker is asked once; of answers that are all behind, the newest."""
        behind: list[metadata_pb2.DescribeTopicsResponse] = []
        error = RegnumError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "no broker to ask; give bootstrap addresses")
        for address in self._metadata.candidates():
            left_s = deadline_s - self._clock.monotonic()
            if left_s <= 0:
                break
            try:
                answer = await self._ask(address, request, timeout_s=min(ANSWER_S, left_s))
            except RegnumError as refusal:
                self._metadata.suspect(address)
                error = refusal
                continue
            view = self._metadata.view
            if answer.cluster_id == view.cluster_id and answer.version >= view.version:
                return answer
            behind.append(answer)
        same = [answer for answer in behind if answer.cluster_id == self._metadata.view.cluster_id]
        return max(same, key=lambda answer: answer.version) if same else error

    async def _ask(
        self, address: Address, request: metadata_pb2.DescribeTopicsRequest, *, timeout_s: float
    ) -> metadata_pb2.DescribeTopicsResponse:
        answer = await call(self._connections.metadata(address).DescribeTopics, request, timeout_s=timeout_s)
        require_heard(answer.cluster_id, address)
        return answer
