"""AlterConfigs, IncrementalAlterConfigs and DescribeConfigs as callers meet them.

A change runs in the controller's task, between its other events: a topic cannot be deleted under it, and what is
answered is in force. Each resource's node keeps the mutation ids of the changes that made it what it is, so that a
change which is sent again is answered and not made again, whoever changed what in between (safety rule S20).
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import nsmallest
from itertools import chain
from typing import Final, TypeGuard, cast

from regnum.types.v1 import errors_pb2
from regnum_coordination.port import Check
from regnum_coordination.recipes.config_mutations import config_mutation
from regnum_coordination.recipes.mutating import NodeMutations
from regnum_model import paths
from regnum_model.config_changes import (
    Alteration,
    Resource,
    ResourceType,
    check_alteration,
    repeated_resources,
    unreadable,
)
from regnum_model.configs import BROKER_KEYS, DEFINITIONS, INTER_BROKER_PROTOCOL, QUOTA_KEYS, TOPIC_KEYS
from regnum_model.nodes import MalformedNodeError
from regnum_service.limits.threads import for_caller
from regnum_service.page_tokens import page_size, page_token, place_of
from regnum_service.slices import slices

from regnum_election.configs.book import ConfigBook
from regnum_election.configs.entries import Entry, Source
from regnum_election.configs.of_brokers import BrokerSettings
from regnum_election.decisions.cluster import Cluster
from regnum_election.decisions.configs import Settings, read_cluster, read_topic
from regnum_election.decisions.rejection import Rejection, node_damaged
from regnum_election.reign.request_queue import RequestQueue
from regnum_election.state.context import ControllerContext
from regnum_election.state.releases import why_not_raised

RESOURCES_PER_TURN: Final = 100
"""Resources looked at between two turns of the event loop (safety rule S22)."""

RESOURCES_PER_STEP: Final = 10
"""Resources that one step changes: a read and a write of the store for each."""

RESOURCES_MAX: Final = 1_000
"""Resources of one call."""

PAGE_MAX: Final = 10_000
"""Resources of one answer to a call that names none."""

NAMES_PER_TURN: Final = 10_000
"""Names of topics looked at between two turns of the event loop."""

DECIDED_PER_TURN: Final = 1_000
"""The same where each is asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A page of resources and their settings."""

    resources: Sequence[tuple[Resource, tuple[Entry, ...]] | Rejection]
    """In the order of the request, or the cluster and topics by name."""
    next_page_token: str
    """Where the next page begins; empty: this is the last."""


class ConfigCalls:
    """Settings on behalf of callers; one for each reign."""

    def __init__(self, context: ControllerContext, book: ConfigBook, requests: RequestQueue) -> None:
        self._context = context
        self._book = book
        self._requests = requests
        self._asker = BrokerSettings(context)
        self._mutations = NodeMutations(context.store, wall_ms=context.clock.wall_ms)

    async def alter(
        self,
        alterations: Sequence[Alteration | Rejection],
        *,
        validate_only: bool,
        wait_s: float,
        mutation: str | None = None,
    ) -> tuple[Rejection | None, ...]:
        """Change settings, each resource on its own; None for each that is done and told. Raises RegnumError.

        Args:
            alterations: what is wanted.
            validate_only: change nothing.
            wait_s: how long the caller waits.
            mutation: id of the call, kept with each resource that it changes; None: a repeat changes them again.
        """
        result: asyncio.Future[tuple[Rejection | None, ...]] = asyncio.get_running_loop().create_future()
        begun = False

        async def steps() -> AsyncGenerator[None, None]:
            nonlocal begun
            repeated = repeated_resources(alterations)
            outcomes: list[Rejection | None] = []
            for start in range(0, len(alterations), RESOURCES_PER_STEP):
                if start:
                    # A failure waits for some of the resources and not for all, and so does what people wrote by hand:
                    # each step begins with what is in force then.
                    yield
                settings = in_force = self._context.picture.settings
                some = alterations[start : start + RESOURCES_PER_STEP]
                begun = begun or not validate_only
                for alteration in some:
                    written: Settings | Rejection = (
                        alteration
                        if isinstance(alteration, Rejection)
                        else check_alteration(alteration, repeated=repeated, in_force=settings.cluster)
                        or await self._write(alteration, settings, mutation=mutation, validate_only=validate_only)
                    )
                    outcomes.append(written if isinstance(written, Rejection) else None)
                    settings = written if isinstance(written, Settings) else settings
                if settings is not in_force:
                    async for _ in self._book.apply(settings, topics=_topics_of(some)):
                        yield
            # Also where nobody waits any more: who was late has heard that the controller is still at work on it.
            if not result.done():
                result.set_result(tuple(outcomes))

        self._requests.submit("alter configs", steps(), result, begun=lambda: begun)
        return await self._requests.answer(result, wait_s)

    async def describe(
        self,
        resources: Sequence[Resource | Rejection],
        *,
        token: str = "",
        size: int = 0,
        shows: Callable[[str], bool] | None = None,
    ) -> Described:
        """What is in force; when nothing is named, a page of the cluster, and of what topics have of their own.

        ``shows``: of which topics the caller may be told when nothing is named; None: all.

        Raises RegnumError INVALID_REQUEST for a token that no answer gave.
        """
        size = page_size(size, default=PAGE_MAX, maximum=PAGE_MAX)
        behind = cast("tuple[str] | None", place_of(token, str))
        picture = self._context.picture
        settings, following = picture.settings, ""
        wanted: Iterable[Resource | Rejection] = resources
        if not resources:
            names = await _names_behind("" if behind is None else behind[0], picture, shows)
            cluster = () if behind is not None else (Resource(type=ResourceType.CLUSTER),)
            # Beside the loop: it compares all of them (safety rule S22).
            page = await for_caller(partial(nsmallest, size - len(cluster), names))
            wanted = chain(cluster, (Resource(type=ResourceType.TOPIC, name=name) for name in page))
            if len(page) < len(names):
                following = page_token((page[-1] if page else "",))
        found: list[tuple[Resource, tuple[Entry, ...]] | Rejection] = []
        answers = await self._asker.ask(filter(_is_broker, resources))
        async for some in slices(wanted, RESOURCES_PER_TURN):
            found.extend(
                answers[one]
                if isinstance(one, Resource) and one in answers
                else _described(one, picture, settings, refused=self._context.refused, own_only=not resources)
                for one in some
            )
        return Described(resources=found, next_page_token=following)

    async def _write(
        self, alteration: Alteration, settings: Settings, *, mutation: str | None, validate_only: bool
    ) -> Settings | Rejection:
        """Write one node; returns what is in force then."""
        resource = alteration.resource
        guards: tuple[Check, ...] = ()
        if resource.type is ResourceType.TOPIC:
            topic = self._context.picture.topic_named(resource.name)
            if topic is None:
                return _no_such_topic(resource.name, self._context.refused)
            guards = (Check(paths.topic_id(topic.id)),)
        if resource.type is ResourceType.CLUSTER and (refused := await self._over_others(alteration, settings)):
            return refused
        wanted = config_mutation(
            alteration, id=mutation, guards=guards, quiet=_is_quiet(resource), in_force=settings.cluster
        )
        done = await self._mutations.carry_out(wanted, validate_only=validate_only)
        if isinstance(done, Rejection):
            return done
        if validate_only or resource.type is ResourceType.BROKER:
            return settings
        if not done.repeated:
            self._context.log.info("settings changed", resource=str(resource), mutation=mutation or "")
        try:
            return _in_force(settings, resource, done.data)
        except MalformedNodeError as error:
            # Of a repeat: somebody has broken since what it left. The next look reports it.
            return unreadable(resource.path, error) if not done.repeated else settings

    async def _over_others(self, alteration: Alteration, settings: Settings) -> Rejection | None:
        """Why the protocol is not raised, where that is asked for: some process does not speak it."""
        for operation in alteration.operations:
            if operation.key != INTER_BROKER_PROTOCOL:
                continue
            definition = DEFINITIONS[INTER_BROKER_PROTOCOL]
            wanted = definition.default if operation.value is None else definition.parse(operation.value)
            if wanted > settings.inter_broker_protocol and (why := await why_not_raised(self._context, wanted)):
                return Rejection(code=errors_pb2.ERROR_CODE_INVALID_CONFIG, message=why)
        return None


def _is_quiet(resource: Resource) -> Callable[[Mapping[str, str], Mapping[str, str]], bool]:
    """Whether nobody follows what differs: brokers hear of settings of topics from the controller."""
    keys = (
        frozenset[str]() if resource.type is ResourceType.TOPIC else QUOTA_KEYS | BROKER_KEYS | {INTER_BROKER_PROTOCOL}
    )
    return lambda before, after: all(before.get(key) == after.get(key) for key in keys)


def _topics_of(alterations: Iterable[Alteration | Rejection]) -> list[str]:
    resources = [one.resource for one in alterations if isinstance(one, Alteration)]
    return [one.name for one in resources if one.type is ResourceType.TOPIC]


def _is_broker(one: Resource | Rejection) -> TypeGuard[Resource]:
    return isinstance(one, Resource) and one.type is ResourceType.BROKER


async def _names_behind(name: str, picture: Cluster, shows: Callable[[str], bool] | None) -> list[str]:
    """Topics with settings of their own whose names come after one, and that may be shown."""
    names: list[str] = []
    async for some in slices(picture.settings.topics, NAMES_PER_TURN if shows is None else DECIDED_PER_TURN):
        names += [one for one in some if one > name and one in picture.names and (shows is None or shows(one))]
    return names


def _described(
    resource: Resource | Rejection,
    picture: Cluster,
    settings: Settings,
    *,
    refused: Collection[str],
    own_only: bool,
) -> tuple[Resource, tuple[Entry, ...]] | Rejection:
    if isinstance(resource, Rejection):
        return resource
    if resource.type is ResourceType.CLUSTER:
        return resource, tuple(_entry(key, settings, topic=None) for key in sorted(DEFINITIONS))
    if resource.name not in picture.names:
        return _no_such_topic(resource.name, refused)
    keys = settings.topics.get(resource.name, {}) if own_only else TOPIC_KEYS
    return resource, tuple(_entry(key, settings, topic=resource.name) for key in sorted(keys))


def _entry(key: str, settings: Settings, *, topic: str | None) -> Entry:
    definition = DEFINITIONS[key]
    own = {} if topic is None else settings.topics.get(topic, {})
    value, source = definition.default, Source.DEFAULT
    if key in own:
        value, source = own[key], Source.TOPIC
    elif key in settings.cluster:
        value, source = settings.cluster[key], Source.CLUSTER
    return Entry(
        name=key,
        value=definition.format(value),
        source=source,
        documentation=definition.doc,
        valid_values=definition.valid_values,
    )


def _in_force(settings: Settings, resource: Resource, data: bytes | None) -> Settings:
    """Settings after a node was written. Raises MalformedNodeError for one that is not readable."""
    if resource.type is ResourceType.TOPIC:
        own = read_topic(data or b"")
        if own.problem:
            raise MalformedNodeError(own.problem)
        return settings.with_topics({resource.name: own.values})
    reading = read_cluster(data, settings.cluster)
    if reading.problem:
        raise MalformedNodeError(reading.problem)
    return replace(settings, cluster=reading.values)


def _no_such_topic(name: str, refused: Collection[str]) -> Rejection:
    if name in refused:
        return node_damaged(name)
    return Rejection(
        code=errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
        message=f"there is no topic {name[:249]}; list the topics to see the names",
    )
