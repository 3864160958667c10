"""Topics that are made because a client asks for them (Kafka: auto.create.topics.enable).

A call of CreateTopics by the same caller, with its rights and quota, and so in its audit log. What its quota has no
room for is left unknown for now: clients ask again (KIP-599). Of clients of one broker that ask for a topic at once the
first one asks the controller, and the others wait for that; where it was refused, the next asks with its own rights.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.topics import INTERNAL_TOPICS, check_topic_name
from regnum_service.errors import Code, RegnumError, traits_of
from regnum_service.limits.call import Call

from regnum_broker.servicers.admin import AdminCall, ForwardingServicer, UnreadRequest
from regnum_broker.serving.metadata_cache import MetadataCache

STRICT: Final = 7
"""Version of CreateTopics that is refused over its quota, where older ones are accepted and held."""
WITHIN_S: Final = 1.0
"""How long an answer waits for the topics that it makes. It may tell of others that a client needs, so it is short."""


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """Of topics whose maker does not say.

    Attributes:
        auto_create: whether asking for a topic makes it.
        partitions: how many it has (Kafka: num.partitions).
    """

    auto_create: bool
    partitions: int


class AutoCreation:
    """Of one broker. Belongs to its event loop."""

    def __init__(self, *, defaults: TopicDefaults, cache: MetadataCache, forwarding: ForwardingServicer) -> None:
        """Only assigns.

        Args:
            defaults: of the topics.
            cache: the cluster, as far as this broker has heard.
            forwarding: passes calls on to the controller.
        """
        self.defaults: Final = defaults
        self._cache: Final = cache
        self._forwarding: Final = forwarding
        self._under_way: Final[dict[str, asyncio.Future[Collection[str]]]] = {}
        """Of topics that are being made, what ends with those that were: of many callers one asks, and is charged."""

    async def make(self, names: Collection[str], call: Call) -> Mapping[str, Code]:
        """Make those of the topics that do not exist; why those are not there that the picture lacks afterwards."""
        wanted = [name for name in dict.fromkeys(names) if name not in self._cache.topics and _may_be_made(name)]
        if not self.defaults.auto_create or not wanted:
            return {}
        told: dict[str, Code] = {}
        try:
            async with asyncio.timeout(WITHIN_S):
                while left := [name for name in wanted if name not in told and name not in self._cache.topics]:
                    others = {name: self._under_way[name] for name in left if name in self._under_way}
                    if own := [name for name in left if name not in others]:
                        told |= await self._make(own, call)
                    if others:
                        await asyncio.wait(set(others.values()))
                    # What another caller was refused, or gave up, this one may be allowed.
                    done = [name for name, ended in others.items() if name in ended.result()]
                    told |= dict.fromkeys(done, errors_pb2.ERROR_CODE_LEADER_NOT_AVAILABLE)
        except TimeoutError:
            return {**dict.fromkeys(wanted, errors_pb2.ERROR_CODE_LEADER_NOT_AVAILABLE), **told}
        return told

    async def _make(self, names: Sequence[str], call: Call) -> Mapping[str, Code]:
        """Make topics that no other caller here is making, as ``make`` does."""
        asked = admin_pb2.CreateTopicsRequest(
            header=types_pb2.RequestHeader(api_version=STRICT, client_id=call.client_id),
            timeout_ms=int(WITHIN_S * 1000),
        )
        for name in names:
            mutation_id = self._forwarding.new_mutation_id()
            asked.topics.add(name=name, mutation_id=mutation_id, partitions=self.defaults.partitions)
        ended: asyncio.Future[Collection[str]] = asyncio.get_running_loop().create_future()
        self._under_way.update(dict.fromkeys(names, ended))
        made: set[str] = set()
        try:
            answer = await self._passed_on(asked, call)
            made = {one.name for one in answer.results if not one.error_code}
            await self._cache.until(lambda: made.issubset(self._cache.topics), WITHIN_S)
        except RegnumError as error:
            return dict.fromkeys(names, _told(error.code))
        finally:
            for name in names:
                del self._under_way[name]
            ended.set_result(made)
        codes = {one.name: one.error_code for one in answer.results}
        return {name: _told(codes.get(name, errors_pb2.ERROR_CODE_NONE)) for name in names}

    async def _passed_on(self, request: admin_pb2.CreateTopicsRequest, call: Call) -> admin_pb2.CreateTopicsResponse:
        unread = UnreadRequest.parse(request.SerializeToString())
        answer = await self._forwarding.pass_on(AdminCall.named("CreateTopics"), unread, call)
        return admin_pb2.CreateTopicsResponse.FromString(answer)


def _may_be_made(name: str) -> bool:
    try:
        check_topic_name(name)
    except ValueError:
        return False
    return name not in INTERNAL_TOPICS


def _told(code: Code) -> Code:
    """What Metadata says of a topic whose creation ended so and that is not here yet."""
    if code in {errors_pb2.ERROR_CODE_NONE, errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS} or traits_of(code).retriable:
        return errors_pb2.ERROR_CODE_LEADER_NOT_AVAILABLE
    if code == errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED:
        return errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED
    return code
