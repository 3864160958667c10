"""What `regnum doctor` has gathered, and what a finding is. Pure."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regnum_service.errors import RegnumError

from regnum_client.admin.describing.quota_usage import ClientUsage
from regnum_client.commands.groups.lags import Lag
from regnum_client.commands.status.asking import Found


class Level(enum.Enum):
    """How bad it is."""

    OK = "ok"
    """All is well."""
    UNKNOWN = "unknown"
    """It could not be looked at."""
    WARNING = "warning"
    """It works, and should be seen to."""
    ERROR = "error"
    """Something does not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    check: str
    """What kind of look: ``disk``."""
    level: Level
    """How bad it is."""
    subject: str
    """What it is about: ``broker 2``."""
    evidence: str
    """What was seen."""
    advice: str = ""
    """What to do; empty where all is well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """A certificate that this client uses."""

    path: str
    """Its file."""
    valid_s: float | None
    """Seconds until it ends, negative: ago; None: not known."""
    reason: str = ""
    """Why that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """Everything that was asked for; a RegnumError in place of what did not answer."""

    status: Found
    """Processes of this machine, the controller's word, what brokers say of themselves."""
    lags: Mapping[str, Lag] | RegnumError
    """How far groups are behind."""
    usages: Mapping[int, Sequence[ClientUsage] | RegnumError] | RegnumError
    """Clients with quotas, by broker."""
    certificates: Sequence[Certificate]
    """Those that this client uses."""
    lag_max: int
    """Records that a group may be behind."""


def as_row(finding: Finding) -> dict[str, Any]:
    """For output."""
    return {
        "level": finding.level.value,
        "check": finding.check,
        "subject": finding.subject,
        "evidence": finding.evidence,
        "advice": finding.advice,
    }
