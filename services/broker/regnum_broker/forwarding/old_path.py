"""Below ``inter.broker.protocol.version`` 2 a broker writes changes of settings and quotas itself (safety rule S19).

Each is one mutation of one node: read, the decision that the controller would make, a conditional write with the
mutation id and the change's announcement. So it does not matter who else carries out the same call: a broker that
believes in the old protocol when the others know the new one, the controller for an envelope, or this one once more.
Topics, access rules and tokens always go to the controller.

Calls take turns: each announces what it changed under the next number, so of many at a time one would get through and
the others begin anew, each round.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_coordination.errors import ConnectionLoss, SessionExpired
from regnum_coordination.port import Store
from regnum_coordination.recipes.config_mutations import config_mutation, quota_mutation
from regnum_coordination.recipes.mutating import Mutation, NodeMutations
from regnum_coordination.recipes.resolved_store import ResolvedStore
from regnum_model.api_versions import ADMIN_SERVICE
from regnum_model.config_changes import Alteration, check_alteration, repeated_resources
from regnum_model.configs import INTER_BROKER_PROTOCOL, MAX_BROKER_EPOCH
from regnum_model.quota_changes import EntityChange, check_change, repeated_entities
from regnum_model.rejection import Rejection
from regnum_service.access.audit import AuditLog, Mutated, NoAudit
from regnum_service.access.authorization import Authorizer
from regnum_service.access.guards.guard import Guard
from regnum_service.access.identity import caller
from regnum_service.clock import Clock
from regnum_service.deadlines import waitable_of
from regnum_service.errors import RegnumError
from regnum_service.limits.call import Call
from regnum_service.mutations.config_messages import alter_results, alteration_of, replacement_of
from regnum_service.mutations.quota_messages import entity_change, quota_results
from regnum_service.request_sizes import Parsing
from regnum_service.slices import slices

RESOURCES_MAX: Final = 1_000
"""Resources of one call, as at the controller."""

ENTITIES_MAX: Final = 5_000
"""Entities of one call, as at the controller."""

PLANNED_AT_ONCE: Final = 500
"""Changes that are looked at between two turns of the event loop (safety rule S22)."""

WAIT_S_MAX: Final = 60.0
"""How long the store is asked for a call that has no deadline, or a later one."""

Planned = tuple[Mutation, str] | Rejection
"""A mutation and what it is about, for the audit log; or why there is none."""


class OldPath:
    """Of one broker. Belongs to its event loop."""

    def __init__(
        self,
        *,
        protocol: Callable[[], int],
        store: Callable[[], Store | None],
        clock: Clock,
        authorizer: Authorizer,
        audit: AuditLog | None = None,
    ) -> None:
        """Only assigns.

        Args:
            protocol: ``inter.broker.protocol.version`` as this broker knows it.
            store: the present session; None: there is none.
            clock: source of time.
            authorizer: what callers may do: nobody else asks for what is carried out here.
            audit: where changes are taken down.
        """
        self._protocol: Final = protocol
        self._store: Final = store
        self._clock: Final = clock
        self._audit: Final = audit or NoAudit()
        self._turn: Final = asyncio.Lock()
        guard = Guard(authorizer)
        service = ADMIN_SERVICE.strip("/")
        self._handlers: Final[Mapping[str, tuple[Any, Callable[[Any, Call], Awaitable[Any]]]]] = MappingProxyType(
            {
                f"{ADMIN_SERVICE}{name}": (message, guard.method(service, name, handler))
                for name, message, handler in (
                    ("IncrementalAlterConfigs", admin_pb2.IncrementalAlterConfigsRequest, self._alter_configs),
                    ("AlterConfigs", admin_pb2.AlterConfigsRequest, self._replace_configs),
                    ("AlterClientQuotas", admin_pb2.AlterClientQuotasRequest, self._alter_quotas),
                )
            }
        )

    def takes(self, method: str) -> bool:
        """Whether this broker carries a call out itself now. ``method``: its path."""
        return method in self._handlers and self._protocol() < MAX_BROKER_EPOCH and self._store() is not None

    async def carry_out(self, method: str, data: bytes, call: Call, *, mutation_id: str) -> bytes:
        """The encoded answer. Raises RegnumError.

        Args:
            method: path of the call.
            data: the request as it came.
            call: for whom.
            mutation_id: for a request that has none, the same in every repeat.
        """
        message, handler = self._handlers[method]
        # Nobody has looked into it yet: what it would become is counted first.
        request = await Parsing(method, message.FromString).message(data)
        request.mutation_id = request.mutation_id or mutation_id
        answer: bytes = (await handler(request, call)).SerializeToString()
        return answer

    async def _alter_configs(
        self, request: admin_pb2.IncrementalAlterConfigsRequest, call: Call
    ) -> admin_pb2.IncrementalAlterConfigsResponse:
        _check_count(len(request.alterations), RESOURCES_MAX, "resources")
        wanted = [alteration_of(one) for one in request.alterations]
        outcomes = await self._each(self._plan_configs(wanted, request.mutation_id), request, call)
        return admin_pb2.IncrementalAlterConfigsResponse(results=alter_results(request.alterations, outcomes))

    async def _replace_configs(
        self, request: admin_pb2.AlterConfigsRequest, call: Call
    ) -> admin_pb2.AlterConfigsResponse:
        _check_count(len(request.replacements), RESOURCES_MAX, "resources")
        wanted = [replacement_of(one) for one in request.replacements]
        outcomes = await self._each(self._plan_configs(wanted, request.mutation_id), request, call)
        return admin_pb2.AlterConfigsResponse(results=alter_results(request.replacements, outcomes))

    async def _alter_quotas(
        self, request: admin_pb2.AlterClientQuotasRequest, call: Call
    ) -> admin_pb2.AlterClientQuotasResponse:
        _check_count(len(request.alterations), ENTITIES_MAX, "entities")
        wanted: list[EntityChange | Rejection] = []
        async for some in slices(request.alterations, PLANNED_AT_ONCE):
            wanted += [entity_change(one) for one in some]
        repeated = repeated_entities(wanted)

        def plan(change: EntityChange | Rejection) -> Planned:
            if isinstance(change, Rejection):
                return change
            refused = check_change(change, repeated=repeated)
            return refused or (quota_mutation(change, id=request.mutation_id), f"quota:{change.entity}")

        planned: list[Planned] = []
        async for part in slices(wanted, PLANNED_AT_ONCE):
            planned += [plan(change) for change in part]
        outcomes = await self._each(planned, request, call)
        return admin_pb2.AlterClientQuotasResponse(results=quota_results(request.alterations, outcomes))

    def _plan_configs(self, wanted: Sequence[Alteration | Rejection], id: str) -> list[Planned]:
        repeated = repeated_resources(wanted)
        in_force = {INTER_BROKER_PROTOCOL: self._protocol()}

        def plan(change: Alteration | Rejection) -> Planned:
            if isinstance(change, Rejection):
                return change
            refused = check_alteration(change, repeated=repeated, in_force=in_force)
            resource = f"{change.resource.type.value}:{change.resource.name}"
            return refused or (config_mutation(change, id=id, stored_topic=True), resource)

        return [plan(change) for change in wanted]

    async def _each(self, planned: Sequence[Planned], request: Any, call: Call) -> list[Rejection | None]:
        """Carry each out on its own."""
        store = self._store()
        if store is None:
            raise RegnumError(
                errors_pb2.ERROR_CODE_NOT_CONTROLLER, "this broker has lost the store; try again, or ask another one"
            )
        wait_s = min(waitable_of(call.left_s(self._clock.monotonic())), WAIT_S_MAX)
        resolved = ResolvedStore(store, self._clock, deadline_s=wait_s)
        mutations = NodeMutations(resolved, wall_ms=self._clock.wall_ms, turn=self._turn)
        outcomes: list[Rejection | None] = []
        noted: list[Mutated] = []
        try:
            async with asyncio.timeout(wait_s):
                for one in planned:
                    if isinstance(one, Rejection):
                        outcomes.append(one)
                        continue
                    mutation, resource = one
                    done = await mutations.carry_out(mutation, validate_only=request.validate_only)
                    refused = done if isinstance(done, Rejection) else None
                    outcomes.append(refused)
                    name = "NONE" if refused is None else errors_pb2.ErrorCode.Name(refused.code)
                    noted.append(Mutated(resource=resource, result=name.removeprefix("ERROR_CODE_")))
        except (ConnectionLoss, SessionExpired, TimeoutError) as error:
            reason = str(error) or "others are before this one"
            raise RegnumError(
                errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT,
                f"the store did not answer in time ({reason}); send it again with the same mutation id, or look first",
            ) from error
        finally:
            if noted and not request.validate_only:
                method = type(request).__name__.removesuffix("Request")
                self._audit.mutated(caller(), f"AdminService/{method}", noted, client_id=request.header.client_id)
        return outcomes


def _check_count(count: int, most: int, what: str) -> None:
    if count > most:
        raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, f"more than {most} {what}: split the request")
