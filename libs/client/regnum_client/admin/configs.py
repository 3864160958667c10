"""Settings as callers give and get them, and as the wire has them. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_service.errors import RegnumError


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigResource:
    """Whose settings.

    >>> ConfigResource(topic="orders").topic
    'orders'
    """

    topic: str | None = None
    """Name of a topic."""
    broker: int | None = None
    """Id of a broker. With neither it is the cluster."""

    def __post_init__(self) -> None:
        """Raise ValueError for both."""
        if self.topic is not None and self.broker is not None:
            raise ValueError("settings belong to a topic or to a broker; name one of them")

    def __str__(self) -> str:
        if self.broker is not None:
            return f"broker {self.broker}"
        return "the cluster" if self.topic is None else f"topic {self.topic}"


CLUSTER_CONFIG = ConfigResource()
"""The settings of the cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigAlteration:
    """Changes to the settings of one resource; what is not named stays.

    >>> admin.alter_config(ConfigAlteration(resource=ConfigResource(topic="orders"), set={"min.insync.replicas": "1"}))
    """

    resource: ConfigResource
    """Whose settings."""
    set: Mapping[str, str] = field(default_factory=dict)
    """New values by name: ``min.insync.replicas``, ``max.message.bytes``, ..."""
    delete: Collection[str] = ()
    """Names of settings that go back to their default."""


class ConfigSource(Enum):
    """Where a value comes from.

    >>> entries = {entry.name: entry for entry in admin.describe_config(ConfigResource(topic="orders"))}
    >>> entries["min.insync.replicas"].source
    <ConfigSource.TOPIC: 'topic'>
    """

    TOPIC = "topic"
    """The topic's own."""
    BROKER = "broker"
    """The broker's own."""
    FLAG = "flag"
    """A flag, or a variable, that the broker was started with."""
    CLUSTER = "cluster"
    """The cluster's."""
    DEFAULT = "default"
    """Nobody said one: the product's, or what a flag of the process says that acts by it."""
    UNKNOWN = "unknown"
    """A newer controller says something that this client does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One setting.

    >>> entries = {entry.name: entry for entry in admin.describe_config(ConfigResource(topic="orders"))}
    >>> entries["min.insync.replicas"].value.isdigit()
    True
    """

    name: str
    """Which."""
    value: str
    """The value in force."""
    source: ConfigSource
    """Where it comes from."""
    documentation: str = ""
    """What it does."""
    valid_values: str = ""
    """Which values it may have, in words."""
    read_only: bool = False
    """It changes with the next start of its broker only."""
    sensitive: bool = False
    """It is a secret: the value is left empty."""


_SOURCES = {
    admin_pb2.CONFIG_SOURCE_TOPIC: ConfigSource.TOPIC,
    admin_pb2.CONFIG_SOURCE_DYNAMIC_BROKER: ConfigSource.BROKER,
    admin_pb2.CONFIG_SOURCE_STATIC_BROKER: ConfigSource.FLAG,
    admin_pb2.CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER: ConfigSource.CLUSTER,
    admin_pb2.CONFIG_SOURCE_DEFAULT: ConfigSource.DEFAULT,
}


def resource_to_wire(resource: ConfigResource) -> admin_pb2.ConfigResource:
    """The message."""
    if resource.topic is None:
        name = "" if resource.broker is None else str(resource.broker)
        return admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_BROKER, name=name)
    return admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC, name=resource.topic)


def config_alteration_to_wire(alteration: ConfigAlteration) -> admin_pb2.ConfigAlteration:
    """The message."""
    configs = [
        admin_pb2.AlterableConfig(name=name, op=admin_pb2.ALTER_CONFIG_OP_SET, value=value)
        for name, value in sorted(alteration.set.items())
    ]
    configs += [
        admin_pb2.AlterableConfig(name=name, op=admin_pb2.ALTER_CONFIG_OP_DELETE) for name in sorted(alteration.delete)
    ]
    return admin_pb2.ConfigAlteration(resource=resource_to_wire(alteration.resource), configs=configs)


def altered_from_wire(result: admin_pb2.AlterConfigsResult, resource: ConfigResource) -> RegnumError | None:
    """What became of one alteration; None says that it was done."""
    if result.error_code == errors_pb2.ERROR_CODE_NONE:
        return None
    return RegnumError(result.error_code, result.error_message, metadata={"resource": str(resource)})


def described_from_wire(
    result: admin_pb2.DescribeConfigsResult,
) -> tuple[ConfigResource, tuple[ConfigEntry, ...] | RegnumError]:
    """The settings of one resource, or why they are not known."""
    resource = _resource_from_wire(result.resource)
    if result.error_code != errors_pb2.ERROR_CODE_NONE:
        return resource, RegnumError(result.error_code, result.error_message, metadata={"resource": str(resource)})
    entries = (
        ConfigEntry(
            name=one.name,
            value=one.value,
            source=_SOURCES.get(one.source, ConfigSource.UNKNOWN),
            documentation=one.documentation,
            valid_values=one.valid_values,
            read_only=one.read_only,
            sensitive=one.sensitive,
        )
        for one in result.configs
    )
    return resource, tuple(sorted(entries, key=lambda entry: entry.name))


def _resource_from_wire(message: admin_pb2.ConfigResource) -> ConfigResource:
    if message.type == admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC:
        return ConfigResource(topic=message.name)
    return ConfigResource(broker=int(message.name)) if message.name.isdigit() else ConfigResource()
