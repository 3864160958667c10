"""Who shows a delegation token: read from the metadata of a call, and checked.

    authorization: Bearer <token id>.<HMAC, base64url without padding>

Goals: whoever tries learns nothing but that it was wrong; nothing of what they sent is repeated in an answer, a log or
a trace; a call costs an HMAC for each secret, with two of them 7 microseconds in all on a busy machine.
"""

import base64
import binascii
from collections.abc import Callable
from typing import Final, NoReturn

from regnum.types.v1 import errors_pb2
from regnum_model.delegation_tokens import Secrets, is_token_id
from regnum_model.principals import Principal

from regnum_service.access.authentication import TOKEN_METADATA, Metadata
from regnum_service.access.tokens.table import TokenTable
from regnum_service.errors import RegnumError

SCHEME: Final = "Bearer "
"""How the entry begins (RFC 6750): tools and proxies know that such an entry is not to be written down."""

_HMAC_CHARACTERS: Final = 86
"""64 bytes in base64 without padding."""


def credential_of(token_id: str, proof: bytes) -> str:
    """What a client keeps: a secret."""
    return f"{token_id}.{base64.urlsafe_b64encode(proof).decode('ascii').rstrip('=')}"


def shown_in(metadata: Metadata) -> tuple[str, bytes] | None:
    """Token id and what is to prove it; None: no entry. Raises RegnumError for an entry that is neither.

    It says nothing of the entry: that may be a secret all the same, of something else.
    """
    entries = [value for name, value in metadata if name == TOKEN_METADATA]
    if not entries:
        return None
    entry = entries[0]
    if len(entries) > 1 or not isinstance(entry, str) or entry[: len(SCHEME)].lower() != SCHEME.lower():
        _wrong()
    token_id, _, proof = entry[len(SCHEME) :].partition(".")
    if not is_token_id(token_id) or len(proof) != _HMAC_CHARACTERS:
        _wrong()
    try:
        return token_id, base64.b64decode(proof + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        _wrong()


class TokenAuthentication:
    """Checks tokens (see ``authentication.TokenCheck``). Belongs to one event loop."""

    def __init__(
        self, table: TokenTable, secrets: Secrets, *, is_known: Callable[[], bool], wall_ms: Callable[[], int]
    ) -> None:
        """Only assigns.

        Args:
            table: the tokens that there are.
            secrets: prove them.
            is_known: whether the table has been read from the store at least once.
            wall_ms: milliseconds since 1970.
        """
        self._table: Final = table
        self._secrets: Final = secrets
        self._is_known: Final = is_known
        self._wall_ms: Final = wall_ms

    def check(self, metadata: Metadata) -> Principal | None:
        """Whose token a call brings; None: it brings none. Raises RegnumError for one that is wrong or has expired."""
        shown = shown_in(metadata)
        if shown is None:
            return None
        token_id, proof = shown
        # Before anything is looked up: an unknown id takes as long as a wrong HMAC.
        holds = self._secrets.holds(token_id, proof)
        if not self._is_known():
            raise RegnumError(
                errors_pb2.ERROR_CODE_COORDINATOR_LOAD_IN_PROGRESS,
                "this process has not read the delegation tokens yet; try again shortly, or at another one",
            )
        token = self._table.find(token_id)
        if token is None or not holds:
            _wrong()
        if token.is_dead(self._wall_ms()):
            raise ended()
        return Principal(token.owner.name, token.owner.type, token_authenticated=True)


class TokensOff:
    """Where the cluster has no secret: whoever shows a token is told so, and is not taken for nobody."""

    def check(self, metadata: Metadata) -> Principal | None:
        """None: there is no token. Raises RegnumError DELEGATION_TOKEN_AUTH_DISABLED."""
        if shown_in(metadata) is None:
            return None
        raise RegnumError(
            errors_pb2.ERROR_CODE_DELEGATION_TOKEN_AUTH_DISABLED,
            "this process knows no secret of delegation tokens; call without one, or give it one:"
            " --delegation-token-secret-file",
        )


def ended() -> RegnumError:
    """What is said to whoever shows a token that has ended."""
    return RegnumError(
        errors_pb2.ERROR_CODE_DELEGATION_TOKEN_EXPIRED, "the delegation token has expired; ask for another one"
    )


def _wrong() -> NoReturn:
    raise RegnumError(
        errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED,
        "the delegation token is unknown or wrong; ask for another one",
    )
