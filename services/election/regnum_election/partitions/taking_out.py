"""What came of taking a forgotten broker out of records of deletions (safety rule S13)."""

from dataclasses import dataclass

from regnum_coordination.port import Check, Refused, Written


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOut:
    """Of one step."""

    records: int
    """Records that name the broker no more."""
    ended: int
    """Those of them that named nobody else, and are gone."""
    registered: bool = False
    """The broker has registered since its guard was read: all other records name it still."""

    def __add__(self, other: "TakenOut") -> "TakenOut":
        """Of both steps."""
        return TakenOut(
            records=self.records + other.records,
            ended=self.ended + other.ended,
            registered=self.registered or other.registered,
        )


NOTHING = TakenOut(records=0, ended=0)


def refused_by(guard: Check | None, outcome: Written | Refused) -> bool:
    """Whether a group was refused because its guard did not hold."""
    return guard is not None and isinstance(outcome, Refused) and getattr(outcome.error, "path", None) == guard.path
