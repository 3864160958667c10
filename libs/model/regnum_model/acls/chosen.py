"""What a wide filter of access rules chose, as the store holds it: the repeat of a DeleteAcls removes that. Pure.

Goal: DeleteAcls with a filter that means more than one pattern is not one write. Its repeat removes what the first
chose and nothing that was added since, also where the controller died when it had changed some of the patterns.

Constraints: a pattern that had no rule that fits knows nothing of the call; nodes have a largest size, and a filter may
choose all the rules of a cluster; nobody repeats a call for ever.

    /admin/acl_deletions/<key>      {"version":1,"id":"5f0c...","digest":"91c1ce2f...","at":1700000000000,"parts":2,
                                     "chosen":{"/acl/literal/topic/orders":["9f86d081884c7d65"]},"done":3}
    /admin/acl_deletions/<key>.1    {"version":1,"at":1700000000000,"chosen":{...}}

The key is a digest of the mutation id, for ids may have slashes. The parts are written first and the head last: with it
the choice is made. ``chosen`` names the rules of each pattern by their marks, or is null where nobody could read them:
there whatever fits goes. ``done``: all of it is carried out, and so many rules went.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from regnum_model.acls.bindings import Entry, ResourcePattern
from regnum_model.acls.nodes import path_of, pattern_at
from regnum_model.mutations import digest_of
from regnum_model.nodes.reading import MalformedNodeError, dumped, int_of, loaded, object_of, str_of

FOLDER: Final = "/admin/acl_deletions"
"""Where choices lie."""

PART_BYTES_MAX: Final = 64 * 1024
"""Bytes of marks and paths in one node, or those of one pattern more: little for a store, and no long turn to read."""

PARTS_MAX: Final = 1_000
"""Nodes of one choice: a million rules on a hundred thousand patterns and more."""

_MARK_LENGTH: Final = 16
_KEY_LENGTH: Final = 32

Marks = frozenset[str] | None
"""Rules of one pattern; None: whatever fits, for they could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceHead:
    """The node that says that a choice was made."""

    id: str
    """Mutation id."""
    digest: str
    """Of the filter."""
    at_ms: int
    """When, in milliseconds since 1970."""
    parts: int
    """Nodes that belong to it, this one included."""
    chosen: Mapping[ResourcePattern, Marks]
    """The first part."""
    done: int | None = None
    """Rules that went, when all is carried out."""


def key_of(id: str) -> str:
    """Name of the head of a mutation's choice."""
    return digest_of("acl deletion", (id,))


def part_name(key: str, number: int) -> str:
    """Name of a part; 0 is the head."""
    return f"{key}.{number}" if number else key


def head_name(name: str) -> str:
    """Name of the head that a node belongs to; its own, if it is one."""
    return name[:_KEY_LENGTH]


def mark_of(entry: Entry) -> str:
    """Names a rule within its pattern."""
    whole = dumped([entry.principal, entry.host, entry.operation.name, entry.permission.name])
    return hashlib.sha256(whole).hexdigest()[:_MARK_LENGTH]


def parts_of(chosen: Iterable[tuple[ResourcePattern, Marks]]) -> Iterator[dict[ResourcePattern, Marks]]:
    """A choice in parts that each fit into a node; at least one."""
    part: dict[ResourcePattern, Marks] = {}
    size = 0
    for pattern, marks in chosen:
        more = len(path_of(pattern)) + 8 + (_MARK_LENGTH + 3) * len(marks or ())
        if part and size + more > PART_BYTES_MAX:
            yield part
            part, size = {}, 0
        part[pattern] = marks
        size += more
    yield part


def encode_head(head: ChoiceHead) -> bytes:
    """Content of a head."""
    content = {"version": 1, "id": head.id, "digest": head.digest, "at": head.at_ms, "parts": head.parts}
    done = {} if head.done is None else {"done": head.done}
    return dumped({**content, "chosen": _content(head.chosen), **done})


def decode_head(data: bytes) -> ChoiceHead:
    """Raises MalformedNodeError."""
    content = object_of(loaded(data), "the node")
    done = content.get("done")
    return ChoiceHead(
        id=str_of(content.get("id"), "id"),
        digest=str_of(content.get("digest"), "digest"),
        at_ms=int_of(content.get("at"), "at", low=0),
        parts=int_of(content.get("parts"), "parts", low=1, high=PARTS_MAX),
        chosen=_chosen(content),
        done=None if done is None else int_of(done, "done", low=0),
    )


def encode_part(chosen: Mapping[ResourcePattern, Marks], at_ms: int) -> bytes:
    """Content of a part that is no head."""
    return dumped({"version": 1, "at": at_ms, "chosen": _content(chosen)})


def decode_part(data: bytes) -> Mapping[ResourcePattern, Marks]:
    """Raises MalformedNodeError."""
    return _chosen(object_of(loaded(data), "the node"))


def made_at_ms(data: bytes) -> int:
    """When a head or a part was written; 0 where nobody can tell, and so it is old."""
    try:
        return int_of(object_of(loaded(data), "the node").get("at"), "at", low=0)
    except MalformedNodeError:
        return 0


def _content(chosen: Mapping[ResourcePattern, Marks]) -> dict[str, list[str] | None]:
    return {path_of(pattern): None if marks is None else sorted(marks) for pattern, marks in chosen.items()}


def _chosen(content: Mapping[str, Any]) -> Mapping[ResourcePattern, Marks]:
    return {
        pattern_at(path): None if marks is None else _marks(marks)
        for path, marks in object_of(content.get("chosen"), "chosen").items()
    }


def _marks(value: object) -> frozenset[str]:
    if not isinstance(value, list):
        raise MalformedNodeError("rules that were chosen are a list of marks")
    return frozenset(str_of(one, "a mark") for one in value)
