"""Asks brokers one question about the cluster, and judges what they say.

Algorithm: each question goes to another broker than the one before (``rotation``); when it has not answered within
100 ms the next one is asked as well. An answer that is behind what is known is put aside and the next broker asked,
three times at most; if there is nothing better, the newest of them is the answer. When all known brokers fail, the
bootstrap addresses are tried.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Final

from regnum.metadata.v1.metadata_pb2 import GetMetadataRequest, GetMetadataResponse
from regnum.types.v1 import errors_pb2
from regnum.types.v1.types_pb2 import RequestHeader
from regnum_model.nodes import Address
from regnum_service.clock import Clock
from regnum_service.errors import RegnumError

from regnum_client.cluster.connections import Connections, call
from regnum_client.cluster.rotation import Rotation
from regnum_client.cluster.view import ClusterView
from regnum_client.tasks import Tasks

HEDGE_S: Final = 0.1
"""After so long without an answer another broker is asked as well."""
ANSWER_S: Final = 2.0
"""Deadline of one question."""
BEHIND_MAX: Final = 3
"""Answers of one question that are put aside because they are behind what is known."""
NAMES_MAX: Final = 10_000
"""Topics that a broker lets one question name."""


class Enquiry:
    """Of one client. Asks one question at a time."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        connections: Connections,
        *,
        clock: Clock,
        chance: random.Random,
        client_id: str,
        tasks: Tasks,
    ) -> None:
        self._tasks: Final = tasks
        self._bootstrap: Final = tuple(bootstrap)
        self._connections: Final = connections
        self._clock: Final = clock
        self._header: Final = RequestHeader(client_id=client_id)
        self._rotation: Final = Rotation(chance)
        self._doubted: set[Address] = set()
        self._last_listed: tuple[Address, ...] = ()
        self._last_good: Address | None = None

    def doubt(self, address: Address) -> None:
        """What the broker there says of itself is in question: the next question goes to the others first."""
        self._doubted.add(address)

    def suspect(self, address: Address) -> None:
        """Somebody could not reach that broker: ask the others first."""
        self._rotation.suspect(address, now_s=self._clock.monotonic())

    async def incarnations_changed(self, before: ClusterView, after: ClusterView) -> None:
        """Brokers that have registered anew are in order again; old connections to them are closed."""
        for broker_id, broker in after.brokers.items():
            known = before.brokers.get(broker_id)
            if known is not None and known.epoch != broker.epoch:
                # A new incarnation: the old connection is dead or waits out its back-off.
                self._rotation.clear(broker.address)
                if known.address != self._last_good:
                    await self._connections.drop(known.address)

    def candidates(self, view: ClusterView) -> list[Address]:
        """Brokers to ask anything, the most promising first.

        Where no broker lives those that lived last are asked: they come back at their addresses, and the bootstrap
        addresses may be none of theirs.
        """
        self._last_listed = tuple(broker.address for broker in view.brokers.values()) or self._last_listed
        return self._rotation.order(
            self._last_listed,
            self._bootstrap,
            now_s=self._clock.monotonic(),
            doubted=self._doubted,
        )

    async def ask(self, topics: Sequence[str] | None, view: ClusterView) -> GetMetadataResponse:
        """An answer about these topics (None: all; empty: brokers only), not behind the picture if there is one.

        Raises RegnumError, what the last broker said, when none has an answer.
        """
        request = GetMetadataRequest(
            header=self._header,
            topics=topics,
            brokers_only=topics is not None and not topics,
            known_brokers=view.brokers_digest,
        )
        candidates = iter(self.candidates(view))
        self._doubted.clear()
        asked: dict[asyncio.Task[GetMetadataResponse], Address] = {}
        behind: list[GetMetadataResponse] = []
        failures: dict[Address, RegnumError] = {}
        last_error = RegnumError(
            errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, "no broker to ask; give bootstrap addresses"
        )
        try:
            while True:
                address = next(candidates, None) if len(behind) < BEHIND_MAX else None
                if address is not None:
                    self._rotation.asked(address)
                    asking = self._tasks.start_question(f"metadata-{address}", self._ask_one(address, request))
                    asked[asking] = address
                elif not asked or len(behind) == BEHIND_MAX:
                    return _newest(behind, view, _explained(failures, last_error))
                patient = address is None and not behind
                done, _ = await asyncio.wait(
                    asked, timeout=None if patient else HEDGE_S, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    if address is None:
                        return _newest(behind, view, _explained(failures, last_error))
                    self.suspect(address)
                for task in done:
                    answered = asked.pop(task)
                    answer = self._judged(task, answered, view)
                    if isinstance(answer, RegnumError):
                        last_error = failures[answered] = answer
                    elif not view.is_behind(answer):
                        return answer
                    else:
                        behind.append(answer)
        finally:
            await self._tasks.end(*asked)

    def _judged(
        self, task: asyncio.Task[GetMetadataResponse], address: Address, view: ClusterView
    ) -> GetMetadataResponse | RegnumError:
        """What a broker answered, noted down for the next question."""
        try:
            answer = task.result()
        except RegnumError as error:
            self.suspect(address)
            return error
        if view.is_behind(answer):
            self.suspect(address)
        else:
            self._rotation.clear(address)
            self._last_good = address
        return answer

    async def _ask_one(self, address: Address, request: GetMetadataRequest) -> GetMetadataResponse:
        names = request.topics
        if len(names) > NAMES_MAX:
            return await self._ask_in_parts(address, request)
        answer = await call(self._connections.metadata(address).GetMetadata, request, timeout_s=ANSWER_S)
        require_heard(answer.cluster_id, address)
        return answer

    async def _ask_in_parts(self, address: Address, request: GetMetadataRequest) -> GetMetadataResponse:
        """One answer of several questions to the same broker; it is as old as the oldest of them."""
        whole = GetMetadataResponse()
        for start in range(0, len(request.topics), NAMES_MAX):
            names = request.topics[start : start + NAMES_MAX]
            one = GetMetadataRequest(header=request.header, topics=names, known_brokers=request.known_brokers)
            answer = await self._ask_one(address, one)
            if not whole.version or answer.version < whole.version:
                answer.topics.extend(whole.topics)
                whole = answer
            else:
                whole.topics.extend(answer.topics)
        return whole


def require_heard(cluster_id: str, address: Address) -> None:
    """Raise RegnumError unless what answered there has heard from a controller, and so knows the cluster's id.

    An answer without brokers is one: all of them may be gone.
    """
    if not cluster_id:
        raise RegnumError(
            errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE,
            f"the broker at {address} has not heard from a controller yet; wait, or see `regnum status`",
        )


def _explained(failures: Mapping[Address, RegnumError], last_error: RegnumError) -> RegnumError:
    if not failures:
        return last_error
    from regnum_client.cluster.reach.reasons import why_nobody_answers  # noqa: PLC0415 - where all is well it is not needed

    return why_nobody_answers(failures, last_error)


def _newest(behind: Sequence[GetMetadataResponse], view: ClusterView, error: RegnumError) -> GetMetadataResponse:
    """The best of answers that are all behind; raises the error when there is none."""
    if not behind:
        raise error
    return max(behind, key=lambda answer: (not view.is_of_another_cluster(answer), answer.version))
