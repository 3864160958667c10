"""IncrementalAlterConfigs and DescribeConfigs as callers meet them.

A change runs in the controller's task, between its other events: a topic cannot be deleted under it, and what is
answered is in force. Values are absolute and every write names the version that it read, so a change that is sent
twice leaves what it would have left once, unless somebody else changed the same setting in between; that is why the
SDK does not repeat one whose outcome is unknown (safety rule S20).
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from heapq import nsmallest
from itertools import chain
from typing import Final, cast

from regnum.types.v1 import errors_pb2
from regnum_coordination.errors import BadVersion, NodeExists, NoNode
from regnum_coordination.port import Check, Create, Delete, Node, Operation, Set
from regnum_coordination.recipes.stored_quotas import newest_change
from regnum_model import paths
from regnum_model.configs import (
    CLUSTER,
    DEFINITIONS,
    QUOTA_KEYS,
    TOPIC_KEYS,
    ConfigDefinition,
    decode_config,
    encode_config,
    topic_config,
)
from regnum_model.nodes import MalformedNodeError
from regnum_model.quotas import CHANGES, change_path
from regnum_service.page_tokens import page_size, page_token, place_of
from regnum_service.slices import slices

from regnum_election.configs.book import ConfigBook
from regnum_election.configs.changes import (
    Alteration,
    Resource,
    ResourceType,
    altered,
    check_alteration,
    repeated_resources,
)
from regnum_election.decisions.cluster import Cluster
from regnum_election.decisions.configs import EXAMPLE, Settings, read_cluster, read_topic
from regnum_election.decisions.rejection import Rejection
from regnum_election.reign.request_queue import RequestQueue
from regnum_election.reign.writing import NotTaken
from regnum_election.state.context import ControllerContext

ROUNDS_MAX: Final = 20
"""Rounds against others who write the same node."""

RESOURCES_PER_TURN: Final = 100
"""Resources looked at between two turns of the event loop (safety rule S22)."""

RESOURCES_MAX: Final = 1_000
"""Resources of one call."""

PAGE_MAX: Final = 10_000
"""Resources of one answer to a call that names none."""

NAMES_PER_TURN: Final = 10_000
"""Names of topics looked at between two turns of the event loop."""


class Source(Enum):
    """Where a value comes from."""

    TOPIC = "topic"
    """The topic's own."""
    CLUSTER = "cluster"
    """The cluster's."""
    DEFAULT = "default"
    """Nobody said one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One setting as it is in force."""

    definition: ConfigDefinition
    """Which."""
    value: str
    """Its value."""
    source: Source
    """Where it comes from."""


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

    async def alter(
        self, alterations: Sequence[Alteration | Rejection], *, validate_only: bool, wait_s: float
    ) -> tuple[Rejection | None, ...]:
        """Change settings, each resource on its own; None for each that is done and told. Raises RegnumError."""
        result: asyncio.Future[tuple[Rejection | None, ...]] = asyncio.get_running_loop().create_future()
        begun = False

        async def steps() -> AsyncGenerator[None, None]:
            nonlocal begun
            repeated = repeated_resources(alterations)
            outcomes: list[Rejection | None] = []
            settings = self._context.picture.settings
            for alteration in alterations:
                refused = alteration if isinstance(alteration, Rejection) else None
                if isinstance(alteration, Alteration):
                    refused = check_alteration(alteration, repeated=repeated, in_force=settings.cluster)
                    if refused is None:
                        begun = begun or not validate_only
                        written = await self._write(alteration, settings, validate_only=validate_only)
                        if isinstance(written, Rejection):
                            refused = written
                        else:
                            settings = written
                outcomes.append(refused)
            if settings != self._context.picture.settings:
                async for _ in self._book.apply(settings):
                    yield
            if not result.done():
                result.set_result(tuple(outcomes))
            return
            yield

        self._requests.submit("alter configs", steps(), result, begun=lambda: begun)
        return await self._requests.answer(result, wait_s)

    async def describe(self, resources: Sequence[Resource | Rejection], *, token: str = "", size: int = 0) -> Described:
        """What is in force; when nothing is named, a page of the cluster, and of what topics have of their own.

        Raises RegnumError INVALID_REQUEST for a token that no answer gave.
        """
        size = page_size(size, default=PAGE_MAX, maximum=PAGE_MAX)
        behind = cast("tuple[str] | None", place_of(token, str))
        picture = self._context.picture
        settings, following = picture.settings, ""
        wanted: Iterable[Resource | Rejection] = resources
        if not resources:
            names = await _names_behind("" if behind is None else behind[0], picture)
            cluster = () if behind is not None else (Resource(type=ResourceType.CLUSTER),)
            # Beside the loop: it compares all of them (safety rule S22).
            page = await asyncio.to_thread(nsmallest, size - len(cluster), names)
            wanted = chain(cluster, (Resource(type=ResourceType.TOPIC, name=name) for name in page))
            if len(page) < len(names):
                following = page_token((page[-1] if page else "",))
        found: list[tuple[Resource, tuple[Entry, ...]] | Rejection] = []
        async for some in slices(wanted, RESOURCES_PER_TURN):
            found.extend(_described(one, picture, settings, own_only=not resources) for one in some)
        return Described(resources=found, next_page_token=following)

    async def _write(self, alteration: Alteration, settings: Settings, *, validate_only: bool) -> Settings | Rejection:
        """Write one node; returns what is in force then."""
        resource, store = alteration.resource, self._context.store
        path = CLUSTER if resource.type is ResourceType.CLUSTER else topic_config(resource.name)
        guard: tuple[Check, ...] = ()
        if resource.type is ResourceType.TOPIC:
            topic = self._context.picture.topic_named(resource.name)
            if topic is None:
                return _no_such_topic(resource.name)
            guard = (Check(paths.topic_id(topic.id)),)
        reason = ""
        for _ in range(ROUNDS_MAX):
            node = (await store.read_many((path,))).get(path)
            try:
                before = {} if node is None else decode_config(node.data, example=EXAMPLE)
                after = altered(before, alteration)
                in_force = _in_force(settings, resource, after)
            except MalformedNodeError as error:
                return Rejection(
                    code=errors_pb2.ERROR_CODE_INVALID_CONFIG,
                    message=f"{path} cannot be read ({error}); correct the node in the store, and try again",
                )
            if validate_only:
                return settings
            if after == before:
                return in_force
            announced = await self._announcement(before, after) if path == CLUSTER else ()
            try:
                await store.multi((*guard, _written(path, node, after), *announced))
            except (BadVersion, NodeExists, NoNode) as error:
                reason = str(error)
                continue
            except NotTaken as error:
                reason = str(error)
                break
            self._context.log.info("settings changed", resource=str(resource), config=after)
            return in_force
        return Rejection(
            code=errors_pb2.ERROR_CODE_INVALID_REQUEST,
            message=f"{path} cannot be written ({reason}); look at the store and try again",
        )

    async def _announcement(self, before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Operation, ...]:
        """Who follows quotas is told when their windows change."""
        if all(before.get(key) == after.get(key) for key in QUOTA_KEYS):
            return ()
        names = await self._context.store.names(CHANGES)
        return (Create(change_path(newest_change(names) + 1), b""),)


async def _names_behind(name: str, picture: Cluster) -> list[str]:
    """Topics with settings of their own whose names come after one."""
    names: list[str] = []
    async for some in slices(picture.settings.topics, NAMES_PER_TURN):
        names += [one for one in some if one > name and one in picture.names]
    return names


def _described(
    resource: Resource | Rejection, picture: Cluster, settings: Settings, *, own_only: bool
) -> tuple[Resource, tuple[Entry, ...]] | Rejection:
    if isinstance(resource, Rejection):
        return resource
    if resource.type is ResourceType.CLUSTER:
        return resource, tuple(_entry(key, settings, topic=None) for key in sorted(DEFINITIONS))
    if resource.name not in picture.names:
        return _no_such_topic(resource.name)
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
    return Entry(definition=definition, value=definition.format(value), source=source)


def _written(path: str, node: Node | None, config: Mapping[str, str]) -> Operation:
    """What makes the node say that; one that says nothing any more goes."""
    if node is None:
        return Create(path, encode_config(config))
    if not config:
        return Delete(path, node.stat.version)
    return Set(path, encode_config(config), node.stat.version)


def _in_force(settings: Settings, resource: Resource, config: Mapping[str, str]) -> Settings:
    """Settings after a node was written. Raises MalformedNodeError for one that would still not be readable."""
    data = encode_config(config)
    if resource.type is ResourceType.TOPIC:
        own = read_topic(data)
        if own.problem:
            raise MalformedNodeError(own.problem)
        return settings.with_topics({resource.name: own.values})
    reading = read_cluster(data, settings.cluster)
    if reading.problem:
        raise MalformedNodeError(reading.problem)
    return replace(settings, cluster=reading.values)


def _no_such_topic(name: str) -> Rejection:
    return Rejection(
        code=errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION,
        message=f"there is no topic {name[:249]}; list the topics to see the names",
    )
