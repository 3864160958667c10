"""Which releases of etcd keep a user to what its roles allow. Pure.

In earlier ones a user with a role for any key gets at all others: by a transaction within a transaction
(CVE-2026-33343, closed in 3.4.42, 3.5.28 and 3.6.9), by puts in transactions that return what was there or take a lease
over (CVE-2026-44283; 3.4.44, 3.5.30, 3.6.11), by a watch without an end (CVE-2026-73499; 3.5.33, 3.6.14, 3.7.1).
"""

from collections.abc import Sequence
from typing import Final

OLDEST: Final = {(3, 5): 33, (3, 6): 14, (3, 7): 1}
"""By minor release, the first patch release in which all of them are closed; none of the earlier minor releases has it,
and all of the later ones have."""

UNTOLD: Final = "before 3.6.9"
"""Stands for a release that refuses its number to users: 3.6.0 to 3.6.8 tell it to root alone."""


def keeps_roles(version: str) -> bool:
    """Whether a release does; a text that is no version says nothing, and counts as if it did."""
    if version == UNTOLD:
        return False
    try:
        major, minor, patch = (int(part) for part in version.partition("-")[0].split("."))
    except ValueError:
        return True
    oldest = OLDEST.get((major, minor))
    return (major, minor) > max(OLDEST) if oldest is None else patch >= oldest


def roles_weakness(versions: Sequence[str]) -> tuple[str, ...]:
    """What is to be said of members of these releases, as ``Examination.weaknesses``."""
    old = sorted({version for version in versions if not keeps_roles(version)})
    if not old:
        return ()
    safe = ", ".join(f"{major}.{minor}.{patch}" for (major, minor), patch in OLDEST.items())
    found = (
        f"is etcd {', '.join(old)}, in which any of its users gets past its roles, to every key (CVE-2026-33343, "
        f"-44283, -73499); run one of {safe}, or a later one of these lines"
    )
    return (found,)
