"""What a change of settings makes of a node, and why a change cannot be made. Pure.

A resource is changed whole or not at all; resources of one call are independent of one another.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import assert_never

from regnum.types.v1 import errors_pb2

from regnum_model.config_definition import ConfigType
from regnum_model.configs import (
    BROKER_KEYS,
    CLUSTER,
    COUPLED,
    DEFAULTS,
    DEFINITIONS,
    INTER_BROKER_PROTOCOL,
    TOPIC_KEYS,
    broker_config,
    contradiction,
    format_value,
    parse_value,
    topic_config,
)
from regnum_model.mutations import digest_of
from regnum_model.nodes import MalformedNodeError
from regnum_model.rejection import Rejection
from regnum_model.spelling import did_you_mean
from regnum_model.topics import INTERNAL_TOPICS


class ResourceType(Enum):
    """What settings belong to."""

    TOPIC = "topic"
    """A topic."""
    CLUSTER = "cluster"
    """All brokers together; Kafka's BROKER without a name."""
    BROKER = "broker"
    """One broker; Kafka's BROKER with its id as name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Whose settings."""

    type: ResourceType
    """What it is."""
    name: str = ""
    """Name of the topic, id of the broker in plain digits; empty for the cluster."""

    @property
    def path(self) -> str:
        """Its node."""
        match self.type:
            case ResourceType.CLUSTER:
                return CLUSTER
            case ResourceType.TOPIC:
                return topic_config(self.name)
            case ResourceType.BROKER:
                return broker_config(int(self.name))
            case _:
                assert_never(self.type)

    def __str__(self) -> str:
        return "the cluster" if self.type is ResourceType.CLUSTER else f"{self.type.value} {self.name}"


class ListChange(Enum):
    """What is done to a setting that is a list."""

    APPEND = "+"
    """Elements are added; those that are there already change nothing."""
    SUBTRACT = "~"
    """Elements are taken out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One setting set or taken back."""

    key: str
    """Which, as given."""
    value: str | None
    """New value, as given; None takes back to the default."""
    change: ListChange | None = None
    """What is done with the elements that ``value`` names; None: it is the whole value."""
    if_known: bool = False
    """Of one that is taken back: that there is none of that name is no error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """What a client wants of one resource, done whole or not at all."""

    resource: Resource
    """Whose settings."""
    operations: tuple[Operation, ...]
    """Changes; what is not named stays."""
    replace: bool = False
    """What is not named goes back to its default (Kafka's AlterConfigs). ``inter.broker.protocol.version``, which is
    never lowered and must not rise by being left out, stays."""

    @property
    def digest(self) -> str:
        """Of what is wanted, for repeats (safety rule S20)."""
        named = sorted((one.key, _digested(one)) for one in self.operations)
        kind = "alter configs" if self.replace else "incremental alter configs"
        return digest_of(kind, (part for pair in named for part in pair))


def _digested(operation: Operation) -> str:
    if operation.value is None:
        return "-"
    return f"{'=' if operation.change is None else operation.change.value}{operation.value}"


def repeated_resources(alterations: Sequence[Alteration | Rejection]) -> frozenset[Resource]:
    """Resources that a call names more than once."""
    counted = Counter(one.resource for one in alterations if isinstance(one, Alteration))
    return frozenset(resource for resource, count in counted.items() if count > 1)


def check_alteration(
    alteration: Alteration, *, repeated: frozenset[Resource], in_force: Mapping[str, int] = DEFAULTS
) -> Rejection | None:
    """Why a change cannot be made; None if it may. ``in_force``: what the cluster's settings are."""
    resource = alteration.resource
    if resource in repeated:
        return invalid(f"{resource} stands twice in the request; name all its settings in one place")
    if resource.type is ResourceType.TOPIC and resource.name in INTERNAL_TOPICS:
        return Rejection(
            code=errors_pb2.ERROR_CODE_INVALID_TOPIC_EXCEPTION,
            message=f"{resource.name} is an internal topic: brokers rely on the settings that they created it with; in"
            " everything else it follows the cluster's",
        )
    return _check_operations(alteration, in_force)


def _check_operations(alteration: Alteration, in_force: Mapping[str, int]) -> Rejection | None:
    resource = alteration.resource
    keys = keys_of(resource)
    known = ", ".join(sorted(keys))
    if not alteration.operations and not alteration.replace:
        return invalid(f"no setting is named for {resource}; name one of {known}")
    counted = Counter(operation.key for operation in alteration.operations)
    for operation in alteration.operations:
        if operation.key not in keys and not (operation.value is None and operation.if_known):
            return _invalid_config(_no_setting(resource, operation.key, known))
        if counted[operation.key] > 1:
            return invalid(f"{operation.key} stands twice for {resource}; give it once")
        if operation.value is not None and (reason := _wrong_value(operation, operation.value, in_force)) is not None:
            return _invalid_config(reason)
    return None


def _wrong_value(operation: Operation, text: str, in_force: Mapping[str, int]) -> str | None:
    key = operation.key
    if operation.change is not None and DEFINITIONS[key].type is not ConfigType.LIST:
        return f"{key} is no list: nothing is added to it or taken out of it; set its value"
    try:
        value = parse_value(key, text)
    except MalformedNodeError as error:
        return f"{error}; give another value, or take the setting back to its default"
    before = in_force.get(key, DEFINITIONS[key].default)
    return lowered(value, before) if key == INTER_BROKER_PROTOCOL and value < before else None


def _no_setting(resource: Resource, key: str, known: str) -> str:
    if resource.type is not ResourceType.BROKER:
        meant = did_you_mean(key[:80], keys_of(resource))
        return f"{resource} has no setting {key[:80]!r}{meant or ';'} choose from {known}"
    if key in DEFINITIONS:
        return f"{key} is no setting of one broker; set it for the cluster{' or a topic' if key in TOPIC_KEYS else ''}"
    meant = did_you_mean(key[:80], BROKER_KEYS)
    return (
        f"a broker has no setting {key[:80]!r} that is changed while it runs{meant or ';'} choose from {known}, "
        "or change the flag that it is started with"
    )


def own_settings(
    configs: Sequence[tuple[str, str]], *, in_force: Mapping[str, int] = DEFAULTS
) -> Mapping[str, int] | Rejection:
    """The settings that a new topic is to have of its own, by name. ``in_force``: what the cluster's settings are."""
    values: dict[str, int] = {}
    for key, text in configs:
        if key not in TOPIC_KEYS:
            meant = did_you_mean(key[:80], TOPIC_KEYS)
            known = ", ".join(sorted(TOPIC_KEYS))
            return _invalid_config(f"a topic has no setting {key[:80]!r}{meant or ';'} choose from {known}")
        if key in values:
            return invalid(f"{key} stands twice; give it once")
        try:
            values[key] = parse_value(key, text)
        except MalformedNodeError as error:
            return _invalid_config(f"{error}; give another value, or leave the setting out")
    if not COUPLED.isdisjoint(values) and (reason := contradiction({**in_force, **values})) is not None:
        return _invalid_config(reason)
    return values


def keys_of(resource: Resource) -> Collection[str]:
    """Settings that a resource may have."""
    match resource.type:
        case ResourceType.CLUSTER:
            return DEFINITIONS.keys()
        case ResourceType.TOPIC:
            return TOPIC_KEYS
        case ResourceType.BROKER:
            return BROKER_KEYS
        case _:
            assert_never(resource.type)


def altered(config: Mapping[str, str], alteration: Alteration) -> dict[str, str]:
    """The content of a node after a change that ``check_alteration`` let pass.

    The cluster names those of ``DEFAULTS`` at any time, so that none depends on the flags of whoever reigns next: one
    that is taken back is written with the product's default.
    """
    after = dict(config)
    operations = alteration.operations
    if alteration.replace:
        named = {operation.key for operation in operations} | {INTER_BROKER_PROTOCOL}
        left_out = (key for key in sorted(keys_of(alteration.resource)) if key in config and key not in named)
        operations = (*operations, *(Operation(key=key, value=None) for key in left_out))
    for operation in operations:
        if operation.value is not None:
            after[operation.key] = format_value(operation.key, parse_value(operation.key, operation.value))
        elif alteration.resource.type is ResourceType.CLUSTER and operation.key in DEFAULTS:
            after[operation.key] = str(DEFAULTS[operation.key])
        else:
            after.pop(operation.key, None)
    return after


def changed_config(
    config: Mapping[str, str], alteration: Alteration, *, in_force: Mapping[str, int] = DEFAULTS
) -> dict[str, str] | Rejection:
    """The content of a resource's node after a change, or why it cannot be made.

    ``check_alteration`` has let it pass; what the node says is judged here, so that whoever reads the node can decide.

    Args:
        config: what the node says.
        alteration: the change.
        in_force: what the cluster's settings are; a topic has those of them that it does not name itself.
    """
    before = config.get(INTER_BROKER_PROTOCOL)
    if alteration.resource.type is ResourceType.CLUSTER and before is not None:
        refused = _lowers(alteration, before)
        if refused is not None:
            return refused
    whole = _with_whole_lists(config, alteration, in_force)
    if isinstance(whole, Rejection):
        return whole
    after = altered(config, whole)
    values: dict[str, int] = {}
    for key in sorted(after.keys() & set(keys_of(alteration.resource))):
        try:
            values[key] = parse_value(key, after[key])
        except MalformedNodeError as error:
            return unreadable(alteration.resource.path, error)
    # What did not fit before this change is no reason to refuse another one.
    if any(config.get(key) != after.get(key) for key in COUPLED):
        inherited = in_force if alteration.resource.type is ResourceType.TOPIC else {}
        if (reason := contradiction({**inherited, **values})) is not None:
            return _invalid_config(reason)
    return after


def _with_whole_lists(
    config: Mapping[str, str], alteration: Alteration, in_force: Mapping[str, int]
) -> Alteration | Rejection:
    """The change with what lists are to be in the place of what is done to them: to what is in force, if need be."""
    operations: list[Operation] = []
    for operation in alteration.operations:
        key, value = operation.key, operation.value
        if operation.change is not None and value is not None:
            try:
                before = parse_value(key, config[key]) if key in config else in_force.get(key, DEFINITIONS[key].default)
            except MalformedNodeError as error:
                return unreadable(alteration.resource.path, error)
            # A list is held as a sum of powers of two: one for each of its elements.
            named = parse_value(key, value)
            after = before | named if operation.change is ListChange.APPEND else before & ~named
            if not after:
                return _invalid_config(f"{key} would be empty without {value}; leave one, or set another one first")
            value = format_value(key, after)
        operations.append(Operation(key=key, value=value))
    return replace(alteration, operations=tuple(operations))


def _lowers(alteration: Alteration, before: str) -> Rejection | None:
    try:
        in_force = parse_value(INTER_BROKER_PROTOCOL, before)
    except MalformedNodeError:
        return None
    for operation in alteration.operations:
        if operation.key == INTER_BROKER_PROTOCOL and operation.value is not None:
            wanted = parse_value(operation.key, operation.value)
            if wanted < in_force:
                return _invalid_config(lowered(wanted, in_force))
    return None


def unreadable(path: str, error: Exception) -> Rejection:
    """A node that nobody can read is not changed."""
    return _invalid_config(f"{path} cannot be read ({error}); correct the node in the store, and try again")


def lowered(wanted: int, before: int) -> str:
    """Why ``inter.broker.protocol.version`` is not lowered."""
    return (
        f"{INTER_BROKER_PROTOCOL} is {before} and cannot be lowered to {wanted}: processes that know no more than "
        f"{wanted} would refuse what the others say since; leave it at {before}"
    )


def invalid(message: str) -> Rejection:
    """A request that makes no sense."""
    return Rejection(code=errors_pb2.ERROR_CODE_INVALID_REQUEST, message=message)


def _invalid_config(message: str) -> Rejection:
    return Rejection(code=errors_pb2.ERROR_CODE_INVALID_CONFIG, message=message)
