"""Why no broker answers, in words for who gave the addresses: those of gRPC are those of its library. Pure."""

from collections.abc import Mapping
from typing import Final

from regnum_model.nodes import Address
from regnum_service.errors import RegnumError, UnansweredError
from regnum_service.tls.advice import why_not_connected

NAMED_MAX: Final = 3
"""Addresses that one message says something about."""

_NO_BROKER: Final = (
    "what listens there hangs up or says something else: it is no broker's listener for clients, or it wants TLS, a "
    "certificate, or another one than was shown (--tls-ca, --tls-certificate)"
)
_MEANINGS: Final = (
    ("Connection refused", "nothing listens there (connection refused)"),
    ("errors resolving", "the name is not known (it cannot be resolved)"),
    ("DNS resolution failed", "the name is not known (it cannot be resolved)"),
    ("No route to host", "there is no way to it from this machine (no route to host)"),
    ("Network is unreachable", "there is no way to it from this machine (network is unreachable)"),
    ("Failed parsing HTTP/2", _NO_BROKER),
    ("SETTINGS frame", "what listens there says nothing: it is no broker's listener, or its process hangs"),
    ("Connection reset", _NO_BROKER),
    ("Socket closed", _NO_BROKER),
    ("Deadline Exceeded", "no answer in time: its process hangs, or what is sent there gets lost on the way"),
    ("Method not found", "what listens there speaks gRPC and is no broker's listener for clients"),
    ("unknown service", "what listens there speaks gRPC and is no broker's listener for clients"),
)
"""What gRPC says, and what that means; the first that is found."""


def why_nobody_answers(failures: Mapping[Address, RegnumError], otherwise: RegnumError) -> RegnumError:
    """The error that says of each address why nobody answered there.

    Args:
        failures: how the last question to each address ended.
        otherwise: the error where somebody did answer: what was said then says more than that others are not reached.
    """
    reasons = {address: _why(error) for address, error in failures.items()}
    said = [failures[address] for address, reason in reasons.items() if not reason]
    if said or not reasons:
        return said[-1] if said else otherwise
    by_reason: dict[str, list[str]] = {}
    for address, reason in reasons.items():
        by_reason.setdefault(reason, []).append(str(address))
    lines = [f"{', '.join(addresses[:NAMED_MAX])}: {reason}" for reason, addresses in by_reason.items()]
    message = (
        f"no broker answers ({'; '.join(lines[:NAMED_MAX])}); check --bootstrap or REGNUM_BOOTSTRAP, and that a broker "
        "runs there"
    )
    kind = UnansweredError if isinstance(otherwise, UnansweredError) else RegnumError
    return kind(otherwise.code, message, metadata=otherwise.metadata, retry_after_ms=otherwise.retry_after_ms)


def _why(error: RegnumError) -> str:
    """Why there was no answer; empty: somebody answered."""
    tls = why_not_connected(error.message)
    meaning = next((meaning for words, meaning in _MEANINGS if words in error.message), "")
    if tls is not None and meaning != _NO_BROKER:
        return tls
    return meaning or (error.message if isinstance(error, UnansweredError) else "")
