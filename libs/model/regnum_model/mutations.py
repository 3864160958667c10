"""Mutations that a node knows: a repeat of one is answered, and not carried out again (safety rule S20). Pure.

Goal: whoever did not hear the answer to a change sends the same change again, with the same mutation id, for as long
as it likes; it happens once.

Constraints: one id is not enough. A sets x, its answer is lost, B sets x, A repeats: with B's id alone in the node,
A's change would be made again and take back B's. What repeats are known by must change in the same write as what the
mutation changed. People write nodes by hand, and the log may come back cut short or as anything at all.

Algorithm: the node, a JSON object, has one more key:

    {"version":1,"config":{"retention.ms":"1000"},
     "mutations":[{"id":"5f0c...","digest":"91c1ce2f...","at":1700000000000,"result":""}]}

oldest first, the last ``KEPT``. Codecs of nodes need not know of it: ``log_of`` reads it from the bytes of a node and
``with_log`` puts it into others. What is in the list and no record is dropped: a log that somebody broke loses what
was broken and nothing else. A change that was refused changed nothing and is not kept: its repeat is decided anew.

The digest says what the mutation was to do. The same id with another content is no repeat but a mistake of whoever
made the id, and is refused.

A node that says nothing any more stays for its log, for ``REPEATED_MS``: no call is repeated after so long a time.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

from regnum.types.v1 import errors_pb2

from regnum_model.nodes.reading import MalformedNodeError, dumped, loaded
from regnum_model.rejection import Rejection

KEPT: Final = 32
"""Mutations that a node keeps."""

ID_LENGTH_MAX: Final = 64
"""Characters of a mutation id."""

RESULT_LENGTH_MAX: Final = 256
"""Characters of what a repeat is told besides that it was done: ASCII that JSON does not escape, so that a log has a
largest size."""

LOG_BYTES_MAX: Final = 16 * 1024
"""Bytes that no log has: ``KEPT`` records of the largest size fit."""

REPEATED_MS: Final = 3_600_000
"""Milliseconds for which a node that says nothing else is kept for its log."""

KEY: Final = "mutations"
"""Key of the log in the node's JSON."""

_ID: Final = re.compile(r"[A-Za-z0-9._~:+/=@-]{1,64}", re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_RESULT: Final = re.compile(r"[ !#-\[\]-~]{0,256}", re.ASCII)
_TIME_MAX: Final = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationRecord:
    """A mutation that was carried out."""

    id: str
    """Made by whoever asked; as ``check_id`` wants it."""
    digest: str
    """Of what was asked, as ``digest_of`` makes it."""
    at_ms: int
    """When, in milliseconds since 1970, by the clock of whoever wrote it."""
    result: str = ""
    """What the answer said besides that it was done; printable ASCII without quotes and backslashes. Never a secret."""


@dataclass(frozen=True, slots=True)
class MutationLog:
    """The last mutations of a node, oldest first."""

    records: tuple[MutationRecord, ...] = ()
    """At most ``KEPT``, each id once."""

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.records)

    def find(self, id: str) -> MutationRecord | None:
        """The mutation of that id, if it was carried out and is still known."""
        return next((record for record in self.records if record.id == id), None)

    def add(self, record: MutationRecord) -> Self:
        """With one more; without the oldest where there are too many. Raises ValueError for what cannot be kept."""
        if _ID.fullmatch(record.id) is None or _DIGEST.fullmatch(record.digest) is None:
            raise ValueError(f"mutation id {record.id[:80]!r} or its digest is none")
        if _RESULT.fullmatch(record.result) is None or not 0 <= record.at_ms <= _TIME_MAX:
            raise ValueError(f"a result has up to {RESULT_LENGTH_MAX} printable ASCII characters without quotes")
        others = (one for one in self.records if one.id != record.id)
        return type(self)((*others, record)[-KEPT:])

    def recent(self, now_ms: int) -> bool:
        """Whether a repeat may still come."""
        return any(abs(now_ms - record.at_ms) < REPEATED_MS for record in self.records)

    def content(self) -> list[dict[str, object]]:
        """As the node's JSON has it."""
        return [
            {"id": one.id, "digest": one.digest, "at": one.at_ms, **({"result": one.result} if one.result else {})}
            for one in self.records
        ]

    @classmethod
    def read(cls, value: object) -> Self:
        """From the node's JSON; what is no record is left out."""
        if not isinstance(value, list):
            return cls()
        log = cls()
        # From the end: of a list that somebody made long, the newest count.
        for item in value[-4 * KEPT :]:
            record = _record(item)
            if record is not None:
                log = log.add(record)
        return log


def _record(item: object) -> MutationRecord | None:
    if not isinstance(item, dict):
        return None
    id, digest, at_ms, result = item.get("id"), item.get("digest"), item.get("at", 0), item.get("result", "")
    if not isinstance(id, str) or _ID.fullmatch(id) is None:
        return None
    if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
        return None
    if not isinstance(result, str) or _RESULT.fullmatch(result) is None:
        return None
    if isinstance(at_ms, bool) or not isinstance(at_ms, int) or not 0 <= at_ms <= _TIME_MAX:
        at_ms = 0
    return MutationRecord(id=id, digest=digest, at_ms=at_ms, result=result)


def check_id(id: str | None) -> Rejection | None:
    """Why a mutation id cannot be kept; None if it may, or if there is none."""
    if id is None or _ID.fullmatch(id) is not None:
        return None
    return Rejection(
        code=errors_pb2.ERROR_CODE_INVALID_REQUEST,
        message=f"a mutation id has 1 to {ID_LENGTH_MAX} characters of A-Z a-z 0-9 . _ ~ : + / = @ -, not {id[:80]!r}; "
        "choose another one, such as a UUID",
    )


def digest_of(kind: str, parts: Iterable[str]) -> str:
    """Digest of what a mutation is to do: its kind, and everything that makes a difference, in a fixed order.

    Where the answer is for one person only, who asks is a part.

    >>> digest_of("set", ("a", "b")) == digest_of("set", ("ab",))
    False
    """
    whole = hashlib.sha256()
    for part in (kind, *parts):
        data = part.encode("utf-8", "surrogatepass")
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.hexdigest()[:32]


def another_content(path: str, id: str) -> Rejection:
    """The id is known, with something else to do."""
    return Rejection(
        code=errors_pb2.ERROR_CODE_INVALID_REQUEST,
        message=f"mutation id {id} has been used for another change of {path}; give each change an id of its own",
    )


def log_of(data: bytes | None) -> MutationLog:
    """The log of a node; none in one that is not there, has none, or cannot be read."""
    if not data:
        return MutationLog()
    try:
        content: Any = loaded(data)
    except (MalformedNodeError, ValueError):
        # ValueError: a number with more digits than Python reads.
        return MutationLog()
    return MutationLog.read(content.get(KEY)) if isinstance(content, dict) else MutationLog()


def with_log(data: bytes, log: MutationLog) -> bytes:
    """A node's content with that log in the place of any other. Raises MalformedNodeError: it is no JSON object.

    With no log it is the same as without.
    """
    if not log and KEY.encode() not in data:
        return data
    content = loaded(data) if data else {"version": 1}
    if not isinstance(content, dict):
        raise MalformedNodeError("a JSON object is expected where mutations are kept")
    content.pop(KEY, None)
    if log:
        content[KEY] = log.content()
    return dumped(content)
