"""Quotas between messages of AdminService and the controller's own words."""

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.quotas import DEFAULT, Default, QuotaEntity, Subject

from regnum_election.admission.quota_changes import EntityChange, LimitChange
from regnum_election.decisions.rejection import Rejection


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


def entity_message(entity: QuotaEntity) -> admin_pb2.QuotaEntity:
    """The message that means an entity."""
    message = admin_pb2.QuotaEntity()
    if entity.user is not None:
        message.user.CopyFrom(_subject_message(entity.user))
    if entity.client_id is not None:
        message.client_id.CopyFrom(_subject_message(entity.client_id))
    return message


def _subject(message: admin_pb2.QuotaSubject) -> Subject | Rejection:
    if message.default_for_all:
        if message.name:
            return _reject(f"{message.name!r} is named together with default_for_all; give one of them")
        return DEFAULT
    if not message.name:
        return _reject("neither a name nor default_for_all is given; give one, or leave it out")
    return message.name


def _subject_message(subject: str | Default) -> admin_pb2.QuotaSubject:
    if isinstance(subject, Default):
        return admin_pb2.QuotaSubject(default_for_all=True)
    return admin_pb2.QuotaSubject(name=subject)


def _reject(message: str) -> Rejection:
    return Rejection(code=errors_pb2.ERROR_CODE_INVALID_REQUEST, message=message)
