"""What kio's classes say of messages: fields with their types on the wire, tags and defaults, by version."""

import dataclasses
import importlib
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

MESSAGES: Final = {
    "api_versions": (0, 4),
    "metadata": (0, 13),
    "produce": (3, 13),
    "fetch": (4, 17),
    "list_offsets": (1, 8),
    "offset_for_leader_epoch": (2, 4),
    "find_coordinator": (0, 4),
    "join_group": (0, 9),
    "sync_group": (0, 5),
    "heartbeat": (0, 4),
    "leave_group": (0, 5),
    "offset_commit": (2, 9),
    "offset_fetch": (1, 9),
    "init_producer_id": (0, 4),
    "describe_cluster": (0, 2),
    "create_topics": (2, 7),
    "delete_topics": (1, 6),
}
"""By kio's name: the oldest and the newest version that is read and written."""

FIXED: Final = {
    "int8": ("b", 1),
    "int16": ("h", 2),
    "error_code": ("h", 2),
    "int32": ("i", 4),
    "timedelta_i32": ("i", 4),
    "int64": ("q", 8),
    "timedelta_i64": ("q", 8),
    "datetime_i64": ("q", 8),
    "uint16": ("H", 2),
    "uint32": ("I", 4),
    "float64": ("d", 8),
    "bool": ("?", 1),
    "uuid": ("16s", 16),
}
TIMES: Final = frozenset({"timedelta_i32", "timedelta_i64", "datetime_i64"})
SHORT_LENGTHS: Final = frozenset({"string"})
"""Have a length of two bytes where it is no varint; all else of four."""
NO_DEFAULT: Final = object()


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of a struct in one version."""

    name: str
    type: str
    """kio's name of a primitive, or ``struct``."""
    struct: "Struct | None"
    many: bool
    null: bool
    tag: int | None
    default: Any

    @property
    def fixed(self) -> bool:
        """Whether it may be part of a run."""
        return self.type in FIXED and not self.many and self.tag is None


@dataclass(frozen=True, kw_only=True)
class Struct:
    """One struct in one version."""

    name: str
    flexible: bool
    fields: tuple[Field, ...]

    @property
    def plain(self) -> Iterator[Field]:
        """Fields that are always there, in order."""
        return (field for field in self.fields if field.tag is None)

    @property
    def tagged(self) -> list[Field]:
        """Fields that may be there, by tag."""
        return sorted((field for field in self.fields if field.tag is not None), key=lambda field: field.tag or 0)

    @property
    def bytes_min(self) -> int:
        """The fewest bytes that it takes."""
        return sum(map(self._bytes_min, self.plain)) + self.flexible

    def _bytes_min(self, field: Field) -> int:
        if field.many:
            return 1 if self.flexible else 4
        if field.type in FIXED:
            return FIXED[field.type][1]
        if field.struct is not None:
            return 1 if field.null else field.struct.bytes_min
        return 1 if self.flexible else 2 if field.type in SHORT_LENGTHS else 4


def struct_of(kind: Any) -> Struct:
    """What kio's class says."""
    hints = typing.get_type_hints(kind)
    fields = tuple(_field(field, hints[field.name]) for field in dataclasses.fields(kind))
    return Struct(name=kind.__name__, flexible=kind.__flexible__, fields=fields)


def _field(field: Any, hint: Any) -> Field:
    null = False
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = [one for one in typing.get_args(hint) if one is not type(None)]
        null = True
    many = typing.get_origin(hint) is tuple
    if many:
        hint = typing.get_args(hint)[0]
    kind = field.metadata.get("kafka_type", "struct")
    name = f"{field.name}_ms" if kind in TIMES else field.name
    return Field(
        name=name,
        type=kind,
        struct=struct_of(hint) if kind == "struct" else None,
        many=many,
        null=null and (many or kind not in FIXED),
        tag=field.metadata.get("tag"),
        default=NO_DEFAULT if field.default is dataclasses.MISSING else field.default,
    )


def default_of(field: Field) -> str:
    """What stands for it where it is not there, as code."""
    if field.many:
        return "()"
    if field.struct is not None or (field.default is None and field.null):
        return "None"
    if field.type == "uuid":
        return "NO_ID"
    if field.type in FIXED:
        return _number(field)
    if field.type == "string":
        return '""' if field.default is NO_DEFAULT else f'"{field.default}"'
    return 'b""'


def _number(field: Field) -> str:
    if field.type == "bool":
        return str(field.default is not NO_DEFAULT and bool(field.default))
    if field.default is NO_DEFAULT:
        return "0"
    if field.default is None:
        return "-1"
    if field.type in TIMES:
        return str(round(field.default.total_seconds() * 1000))
    return str(int(field.default))


def annotation_of(field: Field) -> str:
    """Its type in Python."""
    if field.struct is not None:
        one = f'"{field.struct.name}"'
    elif field.type == "bool":
        one = "bool"
    elif field.type == "uuid":
        one = "bytes"
    elif field.type in FIXED:
        one = "int"
    else:
        one = "str" if field.type == "string" else "bytes | memoryview"
    if field.many:
        one = f"Sequence[{one}]"
    return f"{one} | None".replace('" | None', ' | None"') if field.null or (field.struct and not field.many) else one


def versions_of(message: str, side: str) -> dict[int, Struct]:
    """A message of kio by version."""
    oldest, newest = MESSAGES[message]
    found = {}
    for version in range(oldest, newest + 1):
        module = importlib.import_module(f"kio.schema.{message}.v{version}.{side}")
        found[version] = struct_of(next(kind for kind in vars(module).values() if _is_message(kind, module)))
    return found


def _is_message(kind: Any, module: Any) -> bool:
    if not isinstance(kind, type) or kind.__module__ != module.__name__:
        return False
    return kind.__type__.name in ("request", "response")  # type: ignore[attr-defined]


def _all_structs(struct: Struct) -> Iterator[Struct]:
    for field in struct.fields:
        if field.struct is not None:
            yield from _all_structs(field.struct)
    yield struct


def fields_of_all(versions: dict[int, Struct]) -> dict[str, list[Field]]:
    """The fields of each struct in any version, the newest's first; null where it may be in one of them."""
    merged: dict[str, dict[str, Field]] = {}
    for _, message in sorted(versions.items(), reverse=True):
        for struct in _all_structs(message):
            fields = merged.setdefault(struct.name, {})
            for field in struct.fields:
                known = fields.get(field.name)
                if known is None:
                    fields[field.name] = field
                elif (field.null and not known.null) or (known.default is NO_DEFAULT is not field.default):
                    default = field.default if known.default is NO_DEFAULT else known.default
                    fields[field.name] = dataclasses.replace(known, null=known.null or field.null, default=default)
    return {name: list(fields.values()) for name, fields in merged.items()}
