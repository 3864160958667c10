"""AlterClientQuotas and DescribeClientQuotas as callers meet them."""

from collections.abc import Mapping, Sequence
from typing import Final

from regnum_model.quota_changes import EntityChange
from regnum_model.quotas import QuotaEntity

from regnum_election.admission.quota_book import QuotaBook
from regnum_election.decisions.rejection import Rejection
from regnum_election.reign.request_queue import beside


class QuotaCalls:
    """Calls about the quotas of one reign: answered beside the controller's task."""

    def __init__(self, book: QuotaBook) -> None:
        """Only assigns."""
        self._book: Final = book

    async def alter(
        self,
        changes: Sequence[EntityChange | Rejection],
        *,
        validate_only: bool,
        wait_s: float,
        mutation: str | None = None,
    ) -> tuple[Rejection | None, ...]:
        """Change quotas, each entity on its own; None for each that is done. Raises RegnumError."""
        altering = self._book.alter(changes, validate_only=validate_only, mutation=mutation)
        return await beside(altering, wait_s, late="not all quotas are changed; describe them before trying again")

    async def describe(
        self, entity: QuotaEntity | None, *, wait_s: float
    ) -> tuple[tuple[QuotaEntity, Mapping[str, float]], ...]:
        """What quotas are set, sorted; of one entity or of all. Raises RegnumError."""
        return await beside(self._book.describe(entity), wait_s, late="the store does not answer; try again")
