"""Changes of quotas in the words of the wire."""

from collections.abc import Iterable, Iterator

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.quota_changes import EntityChange, LimitChange
from regnum_model.quotas import DEFAULT, QuotaEntity, Subject
from regnum_model.rejection import Rejection

from regnum_service.item_errors import item_status


def entity_change(alteration: admin_pb2.QuotaAlteration) -> EntityChange | Rejection:
    """What a client wants for one entity, or why nobody can tell whom it means."""
    if not alteration.HasField("entity"):
        return _reject("no entity is given; name a user or a client id, or give an empty entity for the whole cluster")
    entity = entity_of(alteration.entity)
    if isinstance(entity, Rejection):
        return entity
    limits = tuple(
        LimitChange(key=operation.key, value=None if operation.remove else operation.value)
        for operation in alteration.operations
    )
    return EntityChange(entity=entity, limits=limits)


def entity_of(message: admin_pb2.QuotaEntity) -> QuotaEntity | Rejection:
    """Whom a message means."""
    user = _subject(message.user) if message.HasField("user") else None
    client_id = _subject(message.client_id) if message.HasField("client_id") else None
    if isinstance(user, Rejection):
        return _reject(f"user: {user.message}")
    if isinstance(client_id, Rejection):
        return _reject(f"client id: {client_id.message}")
    return QuotaEntity(user=user, client_id=client_id)


def quota_results(
    alterations: Iterable[admin_pb2.QuotaAlteration], outcomes: Iterable[Rejection | None]
) -> Iterator[admin_pb2.AlterClientQuotaResult]:
    """Outcomes, in the order of the request."""
    for alteration, refused in zip(alterations, outcomes, strict=True):
        yield admin_pb2.AlterClientQuotaResult(
            entity=alteration.entity,
            error_code=errors_pb2.ERROR_CODE_NONE if refused is None else refused.code,
            error_message="" if refused is None else refused.message,
            status=None if refused is None else item_status(refused.code, refused.message),
        )


def _subject(message: admin_pb2.QuotaSubject) -> Subject | Rejection:
    if message.default_for_all:
        if message.name:
            return _reject(f"{message.name!r} is named together with default_for_all; give one of them")
        return DEFAULT
    if not message.name:
        return _reject("neither a name nor default_for_all is given; give one, or leave it out")
    return message.name


def _reject(message: str) -> Rejection:
    return Rejection(code=errors_pb2.ERROR_CODE_INVALID_REQUEST, message=message)
