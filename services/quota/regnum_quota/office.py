"""Who decides about mutations, as this process knows it: itself, another process, or nobody."""

from regnum_model.quotas import QuotaProcessNode

from regnum_quota.term import Term, not_coordinator


class Office:
    """Shared by the service and its servicer."""

    def __init__(self) -> None:
        self._term: Term | None = None
        self._known: QuotaProcessNode | None = None

    def begin(self, term: Term) -> None:
        """This process is the active one."""
        self._term = term

    def end(self) -> None:
        """This process is not the active one any more."""
        self._term = None

    def heard_of(self, known: QuotaProcessNode | None) -> None:
        """Another process is the active one, or nobody is known to be."""
        self._known = known

    @property
    def active(self) -> Term | None:
        """This process's term; None while it is not the active one. Any thread."""
        return self._term

    @property
    def term(self) -> Term:
        """This process's term. Raises RegnumError NOT_COORDINATOR, which names the active process if it is known."""
        if self._term is not None:
            return self._term
        if self._known is None:
            raise not_coordinator("no active quota process is known at the moment; try again shortly")
        raise not_coordinator(
            f"quota process {self._known.id} is the active one; ask it at {self._known.internal}",
            quota_id=str(self._known.id),
            quota_address=str(self._known.internal),
        )
