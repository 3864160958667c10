"""How contents of nodes are read and written: JSON, and a clear reason where it is not what it should be."""

import json
from functools import lru_cache
from typing import Any, Final

from regnum_model.ids import (
    BrokerId,
    TopicId,
    is_topic_id,
)
from regnum_model.protocols import ReleaseInfo

MAX_EPOCH: Final = 999_999_999
"""Largest controller or leader epoch that a node may name: the next ones still fit where the wire carries them."""
MAX_BROKER_ID: Final = 2**31 - 1
MAX_PARTITIONS: Final = 1_000_000
"""Partitions of one topic that a node may list."""
NODE_VERSION: Final = 1
"""Version of the nodes' contents that this release writes, and the highest that it reads. Fields may be added without
another version, where processes that do not know them may leave them aside."""


class MalformedNodeError(ValueError):
    """A node's content is not what its path promises. The message says what is wrong with it."""


def loaded(data: bytes) -> Any:
    """What the bytes say; raises MalformedNodeError where they are not JSON."""
    try:
        return json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        # Bytes that are no text, text that is no JSON, and a number of more digits than Python reads.
        raise MalformedNodeError(f"not JSON: {error}") from None


class LaterVersionError(MalformedNodeError):
    """A later release wrote the node: it is not damaged, and not to be mended."""


def versioned(value: object, what: str) -> dict[str, Any]:
    """A JSON object of a version that this release reads.

    One that says none, or something that is no number, was written by hand; 0.1.0 did not look, so it is read as ever.
    """
    content = object_of(value, what)
    found = content.get("version", NODE_VERSION)
    if not isinstance(found, int) or found <= NODE_VERSION:
        return content
    raise LaterVersionError(
        f"{what} has version {found} and this release reads {NODE_VERSION}: a later release wrote it. Run "
        "that release, and see docs/operations/upgrades.md; do not write or delete the node"
    )


def build_of(content: dict[str, Any]) -> ReleaseInfo:
    """What a registration says of the release."""
    try:
        return ReleaseInfo.of(content)
    except ValueError as error:
        raise MalformedNodeError(str(error)) from None


_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))
"""Made once: nodes are encoded by the thousand."""


def dumped(value: object) -> bytes:
    """As bytes of a node."""
    return _ENCODER.encode(value).encode("utf-8")


def object_of(value: object, what: str) -> dict[str, Any]:
    """A JSON object; ``what`` names it for people. Raises MalformedNodeError, as all of these do."""
    if not isinstance(value, dict):
        raise MalformedNodeError(f"{what} is not a JSON object")
    return value


def int_of(value: object, what: str, *, low: int, high: int = 2**63 - 1) -> int:
    """An integer from ``low`` to ``high``."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise MalformedNodeError(f"{what} is not an integer from {low} to {high}")
    return value


def str_of(value: object, what: str) -> str:
    """A string of at most 1024 characters that a message and a path can carry."""
    if not isinstance(value, str) or len(value) > 1024:
        raise MalformedNodeError(f"{what} is not a short string")
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        # JSON may name half a character; no message and no path can carry it.
        raise MalformedNodeError(f"{what} has half a character (a lone surrogate)")
    return value


def ids_of(value: object, what: str) -> tuple[BrokerId, ...]:
    """Broker ids, each once."""
    if not isinstance(value, list):
        raise MalformedNodeError(f"{what} is not a list of broker ids")
    for item in value:
        # States are read by the hundred thousand, and messages about them are rare.
        if type(item) is not int or not 0 <= item <= MAX_BROKER_ID:
            int_of(item, f"{what}: broker id", low=0, high=MAX_BROKER_ID)
    if len(set(value)) != len(value):
        raise MalformedNodeError(f"{what} names a broker twice")
    return tuple(value)


def topic_id_of(value: object) -> TopicId:
    """A topic id."""
    if not isinstance(value, str) or not is_topic_id(value):
        raise MalformedNodeError("topic_id is not 22 characters of URL-safe base64")
    return TopicId(value)


def number_of(key: str, what: str, high: int) -> int:
    """A number from 0 to ``high`` that is the key of an object, in its plain form."""
    if key.isascii() and key.isdigit() and (number := int(key)) <= high and str(number) == key:
        return number
    raise MalformedNodeError(f"{what} {key!r} is not a plain number up to {high}")


MEMBERS_KEPT: Final = 16_384
"""Different replica lists, and lists of members, of which one copy each is kept."""


@lru_cache(maxsize=MEMBERS_KEPT)
def kept_ids(ids: tuple[BrokerId, ...]) -> tuple[BrokerId, ...]:
    """The same, as one copy that many states share."""
    return ids
