"""AdminService, the part about quotas: what is set, who uses what, and connections that have to wait."""

from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import Final

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_model.quota_changes import EntityChange
from regnum_service.access.authorization import EVERYBODY, Authorizer
from regnum_service.errors import RegnumError
from regnum_service.mutations.quota_messages import entity_change, entity_of, quota_results
from regnum_service.muting import Muting
from regnum_service.slices import Turns, slices

from regnum_election.admission.quota_messages import (
    ENTITIES_MAX,
    entity_message,
    page_of_quotas,
    usage_message,
)
from regnum_election.admission.stand_in import Account
from regnum_election.candidacy.role import ControllerRole
from regnum_election.controller import Controller
from regnum_election.decisions.rejection import Rejection
from regnum_election.servicers.acls import AclServicer
from regnum_election.servicers.callers import ITEMS_PER_TURN, account_of, check_count, wait_s
from regnum_election.servicers.leaders import Context
from regnum_election.servicers.turns import ConnectionTurns
from regnum_election.tokens.calls import TokenCalls

USAGES_DEFAULT: Final = 100
"""Buckets that are shown unless somebody wants more."""


class QuotaAdminServicer(AclServicer):
    """Quotas."""

    def __init__(
        self,
        role: ControllerRole,
        *,
        muting: Muting | None = None,
        authorizer: Authorizer = EVERYBODY,
        tokens: TokenCalls | None = None,
    ) -> None:
        """Only assigns.

        Args:
            role: who reigns.
            muting: holds up connections that have to wait; None: none is held up.
            authorizer: what this process enforces.
            tokens: calls about delegation tokens.
        """
        super().__init__(role, authorizer=authorizer, tokens=tokens)
        self._muting: Final = muting
        self._turns: Final = None if muting is None else ConnectionTurns(muting)

    async def DescribeQuotaUsage(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.DescribeQuotaUsageRequest, context: Context
    ) -> admin_pb2.DescribeQuotaUsageResponse:
        """Who uses quotas, and how long the controller's queue makes wait."""
        if request.limit < 0:
            raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, f"limit is {request.limit}; give 0 or more")
        controller = await self._role.controller()
        most = min(request.limit or USAGES_DEFAULT, ENTITIES_MAX)
        found = await controller.quotas.usages.look(most=most, wait_s=wait_s(0, context))
        response = admin_pb2.DescribeQuotaUsageResponse(
            quota_id=found.quota_id,
            buckets=found.in_use,
            muted_connections=0 if self._muting is None else self._muting.connections,
            held_calls=self.held,
            queue_waits=[
                admin_pb2.QueueWait(kind=kind, bounds_s=histogram.bounds, counts=histogram.counts)
                for kind, histogram in controller.queue.waits.by_kind.items()
            ],
        )
        async for some in slices(found.buckets, ITEMS_PER_TURN):
            response.usages.extend(map(usage_message, some))
        return response

    @property
    def held(self) -> int:
        """Calls that wait because their connections have to."""
        return 0 if self._muting is None or self._turns is None else self._muting.held + self._turns.waiting

    def _in_turn(self, controller: Controller, account: Account, context: Context) -> AbstractAsyncContextManager[None]:
        """What a change runs within: its turn, where it can be throttled and not be refused."""
        if account.strict or self._turns is None or not controller.quotas.admissions.may_throttle(account):
            return nullcontext()
        return self._turns.of(context.peer())

    def _account(self, header: types_pb2.RequestHeader, context: Context, *, strict_since: int) -> Account:
        """Who asks for a mutation; the further calls of its connection are held for as long as a quota says."""
        account, muting = account_of(header, strict_since=strict_since), self._muting
        if muting is None:
            return account
        # It may be decided after the call is over.
        peer = context.peer()
        return replace(account, hold_up=lambda seconds: muting.mute(peer, seconds))

    async def AlterClientQuotas(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.AlterClientQuotasRequest, context: Context
    ) -> admin_pb2.AlterClientQuotasResponse:
        """Set and remove quotas, each entity on its own."""
        controller = await self._role.controller()
        check_count(len(request.alterations), ENTITIES_MAX, "entities")
        changes: list[EntityChange | Rejection] = []
        turns = Turns(ITEMS_PER_TURN)
        for alteration in request.alterations:
            changes.append(entity_change(alteration))
            await turns.took(1 + len(alteration.operations))
        outcomes = await controller.quota_calls.alter(
            changes,
            validate_only=request.validate_only,
            wait_s=wait_s(0, context),
            mutation=request.mutation_id or None,
        )
        response = admin_pb2.AlterClientQuotasResponse()
        for result in quota_results(request.alterations, outcomes):
            response.results.append(result)
            await turns.took()
        return response

    async def DescribeClientQuotas(  # noqa: N802 - the name in the proto
        self, request: admin_pb2.DescribeClientQuotasRequest, context: Context
    ) -> admin_pb2.DescribeClientQuotasResponse:
        """All quotas, or those of one entity."""
        controller = await self._role.controller()
        entity = entity_of(request.entity) if request.HasField("entity") else None
        if isinstance(entity, Rejection):
            raise RegnumError(entity.code, entity.message)
        found = await controller.quota_calls.describe(entity, wait_s=wait_s(0, context))
        page, following = await page_of_quotas(found, token=request.page_token, size=request.page_size)
        response = admin_pb2.DescribeClientQuotasResponse(next_page_token=following)
        async for some in slices(page, ITEMS_PER_TURN):
            response.quotas.extend(
                admin_pb2.QuotaDescription(entity=entity_message(one), values=values) for one, values in some
            )
        return response
