"""Pages of long lists, as in Google's AIP-158: page_size, page_token, next_page_token.

A token says where the next page begins by the place of the last entry shown, and not by a count or a snapshot: it means
the same to every process at any time, and entries that come or go meanwhile move nothing behind it. Clients take it for
opaque.
"""

import base64
import binascii
import json
from typing import Final, TypeAlias

from regnum.types.v1 import errors_pb2

from regnum_service.errors import RegnumError

TOKEN_LENGTH_MAX: Final = 2_000
"""Characters of a token; a longer one is none of ours."""

Place: TypeAlias = tuple[str | int, ...]
"""Place of an entry in its list: what the list is sorted by."""


def page_size(asked: int, *, default: int, maximum: int) -> int:
    """Entries of a page. Raises RegnumError INVALID_REQUEST for a negative number."""
    if asked < 0:
        raise _invalid("page_size is negative; give a positive one, or 0 for the default")
    return min(asked or default, maximum)


def page_token(place: Place) -> str:
    """The token of the page behind a place."""
    encoded = json.dumps(place, ensure_ascii=False, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(encoded).rstrip(b"=").decode()


def place_of(token: str, *kinds: type[str] | type[int]) -> Place | None:
    """The place that a page begins behind; None: it is the first page.

    Args:
        token: as a request gives it.
        kinds: types of the parts that a place has in this list.

    Raises:
        RegnumError: INVALID_REQUEST, no answer gave that token.
    """
    if not token:
        return None
    if len(token) > TOKEN_LENGTH_MAX:
        raise _unknown()
    try:
        found = json.loads(base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise _unknown() from error
    if not isinstance(found, list) or [type(part) for part in found] != list(kinds):
        raise _unknown()
    return tuple(found)


def _unknown() -> RegnumError:
    return _invalid(
        "no answer gave that page_token: send back the next_page_token of the page before, with the same question"
    )


def _invalid(message: str) -> RegnumError:
    return RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, message)
