"""Callers that a closed cluster refuses: from which Pod each tries, with what it shows, and what is to become of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from regnum_testing.kubernetes.observed import Attempt, Gate

ADMIN: Final = "admin"
"""Credential of a client that may do everything."""
GUEST: Final = "guest"
"""Credential of a client that has no rule."""
STRANGER: Final = "stranger"
"""No certificate, and the authority by which brokers are checked."""
SECRETS: Final[Mapping[str, str]] = {ADMIN: "regnum-admin-tls", GUEST: "regnum-guest-tls"}
"""Where a credential is in the cluster's namespace (``deploy/k8s/components/tls/secrets-to-try.sh``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intruder:
    """Somebody who is to be refused."""

    name: str
    """Of the Pod."""
    what: str
    """In words."""
    labelled: bool
    """Whether its namespace has the label of clients."""
    credential: str
    """What it shows; empty: plaintext."""
    gate: Gate
    """What is to stop it."""


def intruders(credentials: Mapping[str, Any]) -> tuple[Intruder, ...]:
    """Those to be tried. Without credentials nobody is told from anybody: only another namespace is kept out.

    Args:
        credentials: what there is for clients, by name; empty where clients connect in plaintext.
    """
    shown = ADMIN if ADMIN in credentials else ""
    found = [
        Intruder(
            name="other-namespace",
            what="a Pod of a namespace without the label",
            labelled=False,
            credential=shown,
            gate=Gate.NETWORK,
        )
    ]
    if shown:
        found.append(
            Intruder(
                name="no-certificate",
                what="a Pod without a certificate",
                labelled=True,
                credential=STRANGER,
                gate=Gate.HANDSHAKE,
            )
        )
    if GUEST in credentials:
        found.append(
            Intruder(
                name="no-rule",
                what="a Pod with a client certificate and no rule",
                labelled=True,
                credential=GUEST,
                gate=Gate.RULES,
            )
        )
    return tuple(found)


def attempt_of(intruder: Intruder, line: str, *, counted: Mapping[str, float]) -> Attempt:
    """What its Pod told, in its last line, and what the processes' counters gained meanwhile."""
    told = json.loads(line)
    return Attempt(
        what=intruder.what,
        gate=intruder.gate,
        connected=told["connected"],
        done=told["done"],
        reason=told["reason"],
        message=told["message"],
        counted=counted,
    )
