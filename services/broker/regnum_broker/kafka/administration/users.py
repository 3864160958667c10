"""Quotas of clients, and credentials of users, between Kafka's messages and the controller's."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_kafka_wire.gen import alter_client_quotas_request, alter_client_quotas_response
from regnum_kafka_wire.gen.alter_client_quotas_request import AlterClientQuotasRequest
from regnum_kafka_wire.gen.alter_client_quotas_response import AlterClientQuotasResponse
from regnum_kafka_wire.gen.describe_client_quotas_request import ComponentData, DescribeClientQuotasRequest
from regnum_kafka_wire.gen.describe_client_quotas_response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from regnum_kafka_wire.gen.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from regnum_kafka_wire.gen.describe_user_scram_credentials_response import (
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from regnum_model.access import Operation, ResourceType
from regnum_service.access.authorization import Authorizer, Right
from regnum_service.errors import Code, RegnumError
from regnum_service.limits.answers import making
from regnum_service.slices import Turns

from regnum_broker.kafka.administration.passing_on import PassingOn, header
from regnum_broker.kafka.administration.rooms import Room
from regnum_broker.kafka.context import Context
from regnum_broker.kafka.refusals import check_once

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
"""Kafka's kinds of entities; of the last there are no quotas here."""
EXACT: Final = 0
DEFAULT: Final = 1
"""Kafka's numbers of how a filter is meant; another one: any name, the default's too."""
RESOURCE_NOT_FOUND: Final = 91
"""Kafka's number; the other door has nothing that it could say so of."""
ENTITY_BYTES: Final = 500
"""About what an entity with its quotas takes of an answer, before it is encoded."""
SLICE: Final = 1_000
"""Entities put into an answer before the event loop gets a turn (safety rule S22)."""

DESCRIBE_CLUSTER: Final = Right(Operation.DESCRIBE, ResourceType.CLUSTER)

Entity = Mapping[str, str | None]
"""Names by kind; None: the quota of all that have none of their own."""


class UserAdministration:
    """Of one broker. Belongs to its event loop."""

    def __init__(self, *, controller: PassingOn, authorizer: Authorizer) -> None:
        """Only assigns.

        Args:
            controller: has the quotas.
            authorizer: whether a caller may be told of credentials.
        """
        self._controller: Final = controller
        self._authorizer: Final = authorizer

    @property
    def rooms(self) -> Mapping[int, Room]:
        """By API key."""
        return {
            48: (self.quotas, self.no_quotas),
            49: (self.alter_quotas, self.no_alter_quotas),
            50: (self.credentials, self.no_credentials),
        }

    async def quotas(self, request: DescribeClientQuotasRequest, context: Context) -> DescribeClientQuotasResponse:
        """Quotas of the entities that fit. The whole cluster's has no name in Kafka, and is left out."""
        for component in request.components:
            _check_kind(component.entity_type)
        # As Kafka's brokers do: each component is held against each entity.
        check_once((component.entity_type for component in request.components), "kind of entity")
        asked = admin_pb2.DescribeClientQuotasRequest(header=header(context))
        entries: list[EntryData] = []
        turns = Turns(SLICE)
        while True:
            page = await self._controller.pass_on(
                "DescribeClientQuotas", asked, admin_pb2.DescribeClientQuotasResponse, context
            )
            for one in page.quotas:
                await turns.took()
                entity = _entity_of(one.entity)
                if entity and _fits(entity, request.components, strict=request.strict):
                    making(ENTITY_BYTES)
                    entries.append(
                        EntryData(
                            [EntityData(kind, name) for kind, name in entity.items()],
                            [ValueData(key, value) for key, value in sorted(one.values.items())],
                        )
                    )
            if not page.next_page_token:
                return DescribeClientQuotasResponse(error_message=None, entries=entries)
            asked.page_token = page.next_page_token

    def no_quotas(
        self, request: DescribeClientQuotasRequest, context: Context, code: Code
    ) -> DescribeClientQuotasResponse:
        """That they are not told."""
        del request, context
        return DescribeClientQuotasResponse(error_code=code, error_message=None, entries=None)

    async def alter_quotas(self, request: AlterClientQuotasRequest, context: Context) -> AlterClientQuotasResponse:
        """Set and remove quotas, each entity on its own."""
        asked = admin_pb2.AlterClientQuotasRequest(header=header(context), validate_only=request.validate_only)
        wrong: dict[int, str] = {}
        for place, entry in enumerate(request.entries):
            entity = {one.entity_type: one.entity_name for one in entry.entity}
            if not entity or len(entity) < len(entry.entity) or not entity.keys() <= {USER, CLIENT_ID}:
                wrong[place] = "quotas are of a user, of a client-id, or of both: name each once"
                continue
            asked.alterations.add(
                entity=admin_pb2.QuotaEntity(
                    **{field: _subject(entity[kind]) for kind, field in _FIELDS.items() if kind in entity}
                ),
                operations=[
                    admin_pb2.QuotaOperation(key=op.key, value=0.0 if op.remove else op.value, remove=op.remove)
                    for op in entry.ops
                ],
            )
        results: Iterable[admin_pb2.AlterClientQuotaResult] = ()
        if asked.alterations:
            answer = await self._controller.pass_on(
                "AlterClientQuotas", asked, admin_pb2.AlterClientQuotasResponse, context
            )
            results = answer.results
        done = iter(results)
        entries = []
        for place, entry in enumerate(request.entries):
            code, message = int(errors_pb2.ERROR_CODE_INVALID_REQUEST), wrong.get(place, "")
            if not message:
                result = next(done)
                code, message = result.error_code, result.error_message
            entries.append(_altered(entry, code, message or None))
        return AlterClientQuotasResponse(entries=entries)

    def no_alter_quotas(
        self, request: AlterClientQuotasRequest, context: Context, code: Code
    ) -> AlterClientQuotasResponse:
        """That nothing was changed."""
        del context
        return AlterClientQuotasResponse(entries=[_altered(entry, code, None) for entry in request.entries])

    async def credentials(
        self, request: DescribeUserScramCredentialsRequest, context: Context
    ) -> DescribeUserScramCredentialsResponse:
        """Credentials for SCRAM, which nobody has here: clients show certificates."""
        del context
        DESCRIBE_CLUSTER.require(self._authorizer)
        return DescribeUserScramCredentialsResponse(
            error_message=None,
            results=[
                DescribeUserScramCredentialsResult(user.name, RESOURCE_NOT_FOUND, "users have no credentials for SCRAM")
                for user in request.users or ()
            ],
        )

    def no_credentials(
        self, request: DescribeUserScramCredentialsRequest, context: Context, code: Code
    ) -> DescribeUserScramCredentialsResponse:
        """That they are not told."""
        del request, context
        return DescribeUserScramCredentialsResponse(error_code=code, error_message=None)


_FIELDS: Final[Mapping[str, str]] = {USER: "user", CLIENT_ID: "client_id"}
"""Fields of QuotaEntity by kind."""


def _subject(name: str | None) -> admin_pb2.QuotaSubject:
    return admin_pb2.QuotaSubject(default_for_all=True) if name is None else admin_pb2.QuotaSubject(name=name)


def _entity_of(message: admin_pb2.QuotaEntity) -> Entity:
    found: dict[str, str | None] = {}
    for kind, field in _FIELDS.items():
        if message.HasField(field):  # type: ignore[arg-type]
            subject = getattr(message, field)
            found[kind] = None if subject.default_for_all else subject.name
    return found


def _check_kind(kind: str) -> None:
    if kind not in {USER, CLIENT_ID, IP}:
        raise RegnumError(
            errors_pb2.ERROR_CODE_UNSUPPORTED_VERSION,
            f"there are no quotas of {kind[:80]!r}: ask for user or client-id",
        )


def _fits(entity: Entity, components: Sequence[ComponentData], *, strict: bool) -> bool:
    """Whether an entity is one that a filter means: of all kinds that it names, and with ``strict`` of no other."""
    if strict and len(components) < len(entity):
        return False
    for one in components:
        if one.entity_type not in entity:
            return False
        name = entity[one.entity_type]
        if (one.match_type == EXACT and name != one.match) or (one.match_type == DEFAULT and name is not None):
            return False
    return True


def _altered(
    entry: alter_client_quotas_request.EntryData, code: int, message: str | None
) -> alter_client_quotas_response.EntryData:
    return alter_client_quotas_response.EntryData(
        code,
        message,
        [alter_client_quotas_response.EntityData(one.entity_type, one.entity_name) for one in entry.entity],
    )
