"""Quotas as callers give and get them, and as the wire has them. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from regnum.admin.v1 import admin_pb2
from regnum_model.quotas import DEFAULT, QuotaEntity, Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaAlteration:
    """Changes to the quotas of one entity; what is not named stays.

    >>> alteration = QuotaAlteration(entity=QuotaEntity(client_id="importer"), set={"controller_mutation_rate": 50.0})
    >>> admin.alter_client_quotas([alteration])
    {QuotaEntity(user=None, client_id='importer'): None}
    """

    entity: QuotaEntity
    """Whose quotas."""
    set: Mapping[str, float] = field(default_factory=dict)
    """New limits by key: ``controller_mutation_rate`` in partitions a second, ``controller_mutation_burst``."""
    remove: Collection[str] = ()
    """Keys whose limits are taken away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuota:
    """The quotas of one entity.

    >>> [quota.values for quota in admin.describe_client_quotas(QuotaEntity(client_id="unknown"))]
    []
    """

    entity: QuotaEntity
    """Whose quotas."""
    values: Mapping[str, float]
    """Limits by key."""


def alteration_to_wire(alteration: QuotaAlteration) -> admin_pb2.QuotaAlteration:
    """The message."""
    operations = [admin_pb2.QuotaOperation(key=key, value=value) for key, value in sorted(alteration.set.items())]
    operations += [admin_pb2.QuotaOperation(key=key, remove=True) for key in sorted(alteration.remove)]
    return admin_pb2.QuotaAlteration(entity=entity_to_wire(alteration.entity), operations=operations)


def entity_to_wire(entity: QuotaEntity) -> admin_pb2.QuotaEntity:
    """The message. A part that says nothing is unset."""
    message = admin_pb2.QuotaEntity()
    for part, subject in ((message.user, entity.user), (message.client_id, entity.client_id)):
        if subject is DEFAULT:
            part.default_for_all = True
        elif isinstance(subject, str):
            part.SetInParent()
            part.name = subject
    return message


def quota_from_wire(message: admin_pb2.QuotaDescription) -> ClientQuota:
    """Read a description."""
    entity = QuotaEntity(
        user=_subject(message.entity.user) if message.entity.HasField("user") else None,
        client_id=_subject(message.entity.client_id) if message.entity.HasField("client_id") else None,
    )
    return ClientQuota(entity=entity, values=dict(sorted(message.values.items())))


def _subject(message: admin_pb2.QuotaSubject) -> Subject:
    return DEFAULT if message.default_for_all else message.name
