"""Which protocols between processes a release speaks, and who stands in the way of the next one. Pure.

Every process says in its registration which release it is and which ``inter.broker.protocol.version`` it speaks. The
protocol in force (``/feature``) is raised only when all that are registered speak the higher one, and a process that
does not speak what is in force takes no part: it is refused with words, on both sides.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

PROTOCOL: Final = "inter.broker.protocol.version"
"""Name of the setting."""


PROTOCOL_MAX: Final = 10_000
"""The highest that a registration may name: no release comes near, and it fits wherever it is carried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolRange:
    """Protocols that a process speaks, both ends included."""

    low: int
    """The lowest; 1 at least."""
    high: int
    """The highest."""

    def __contains__(self, level: int) -> bool:
        return self.low <= level <= self.high

    def __str__(self) -> str:
        return f"{self.low}" if self.low == self.high else f"{self.low} to {self.high}"


KNOWN: Final = ProtocolRange(low=1, high=2)
"""What this release speaks."""
OF_FIRST_RELEASE: Final = ProtocolRange(low=1, high=2)
"""What a process speaks that does not say: only those of 0.1.0 do not. This never changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseInfo:
    """What a process says of itself."""

    release: str = ""
    """Version of the distribution; empty: it does not say, as 0.1.0 did not."""
    protocols: ProtocolRange = OF_FIRST_RELEASE
    """Protocols between processes that it speaks."""

    @property
    def shown(self) -> str:
        """For people."""
        return self.release or "0.1.0"

    def fields(self) -> dict[str, object]:
        """For a registration; nothing where nothing is said."""
        if not self.release:
            return {}
        return {"release": self.release, "protocols": [self.protocols.low, self.protocols.high]}

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Self:
        """From a registration; raises ValueError for what is no range."""
        release, protocols = content.get("release", ""), content.get("protocols")
        if not isinstance(release, str) or len(release) > 100 or not release.isascii() or not release.isprintable():
            raise ValueError("release is not a short string of printable characters")
        if protocols is None:
            return cls(release=release)
        match protocols:
            case [int(low), int(high)] if bool not in (type(low), type(high)) and 1 <= low <= high <= PROTOCOL_MAX:
                return cls(release=release, protocols=ProtocolRange(low=low, high=high))
            case _:
                raise ValueError("protocols is not [lowest, highest]")


UNSAID: Final = ReleaseInfo()
"""Of a process that says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredProcess:
    """A process of the cluster, as its registration says."""

    role: str
    """``broker``, ``election``, ``metadata``, ``quota``."""
    id: int
    """Its id among those of its role."""
    build: ReleaseInfo
    """What it says of itself."""
    problem: str = ""
    """Why its registration cannot be read; empty: it can. Then nothing is known of what it speaks."""

    def __str__(self) -> str:
        what = self.problem or f"{self.build.shown}, speaks {self.build.protocols}"
        return f"{self.role} {self.id} ({what})"


def speaks_not(processes: Iterable[RegisteredProcess], level: int) -> tuple[RegisteredProcess, ...]:
    """Which of some processes do not speak a protocol, or nobody knows whether they do."""
    return tuple(one for one in processes if one.problem or level not in one.build.protocols)


NAMED_MAX: Final = 5
"""Processes that a refusal names."""


def not_raised(level: int, lacking: tuple[RegisteredProcess, ...]) -> str:
    """Why the protocol is not raised."""
    named = ", ".join(map(str, lacking[:NAMED_MAX]))
    more = f" and {len(lacking) - NAMED_MAX} more" if len(lacking) > NAMED_MAX else ""
    return (
        f"{PROTOCOL} cannot be raised to {level}: {named}{more} would not understand the others. Bring them to a"
        " release that speaks it, or stop them, and try again; `regnum status` shows what every process speaks"
    )


def refusal(in_force: int, build: ReleaseInfo) -> str:
    """Why a process takes no part in a cluster; empty: it may."""
    if in_force in build.protocols:
        return ""
    if in_force > build.protocols.high:
        advice = f"start a release that speaks {in_force}: the protocol was raised and is never lowered"
    else:
        advice = f"start the release before it, raise {PROTOCOL} to {build.protocols.low} with it, and then upgrade"
    return f"the cluster speaks protocol {in_force} and release {build.shown} speaks {build.protocols}; {advice}"
