"""Code that reads a request, or writes a response, in each of its versions."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final

from regnum_kafka_wire.primitives import TEXT_BYTES_MAX

from regnum_testing.kafka_wire.schema import (
    FIXED,
    SHORT_LENGTHS,
    Field,
    Struct,
    annotation_of,
    default_of,
    fields_of_all,
    versions_of,
)


class Writer:
    """Lines of code at an indentation."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.structs: dict[str, str] = {}
        """Names of ``Struct`` constants by format."""
        self._names = 0

    def put(self, depth: int, *lines: str) -> None:
        """These lines."""
        self.lines += ["    " * depth + line for line in lines]

    def fresh(self) -> str:
        """A name for a local."""
        self._names += 1
        return f"x{self._names}"

    def struct(self, format: str) -> str:
        """The constant that packs it."""
        name = "_" + format.replace("?", "o").upper().replace("16S", "U") + ("" if format.islower() else "_")
        return self.structs.setdefault(format, name)


def _runs(struct: Struct) -> Iterator[tuple[list[Field], Field | None]]:
    """Fixed fields that follow one another, and the field behind them; None: the struct ends."""
    run: list[Field] = []
    for field in struct.plain:
        if field.fixed:
            run.append(field)
        else:
            yield run, field
            run = []
    yield run, None


class Reading:
    """Code that reads one version of a message."""

    def __init__(self, out: Writer, all_fields: dict[str, list[Field]]) -> None:
        self._out = out
        self._all = all_fields

    def struct(self, struct: Struct, depth: int, into: str) -> None:
        """Make one, and read it."""
        out = self._out
        out.put(depth, f"{into} = {struct.name}.__new__({struct.name})")
        here = {field.name for field in struct.plain}
        for absent in self._all[struct.name]:
            if absent.name not in here:
                out.put(depth, f"{into}.{absent.name} = {default_of(absent)}")
        for run, field in _runs(struct):
            if run:
                self._run(run, depth, into)
            if field is not None:
                self._value(field, depth, f"{into}.{field.name}", flexible=struct.flexible)
        if struct.flexible:
            self._tags(struct, depth, into)

    def _run(self, run: Sequence[Field], depth: int, into: str) -> None:
        format = "".join(FIXED[field.type][0] for field in run)
        size = sum(FIXED[field.type][1] for field in run)
        targets = ", ".join(f"{into}.{field.name}" for field in run) + ("," if len(run) == 1 else "")
        self._out.put(depth, f"{targets} = {self._out.struct(format)}.unpack_from(b, p)", f"p += {size}")

    def _length(self, depth: int, *, flexible: bool, short: bool) -> None:
        if flexible:
            self._out.put(depth, "n = b[p]", "p += 1", "if n > 127:", "    n, p = continued(b, p, n)", "n -= 1")
        else:
            format, size = ("h", 2) if short else ("i", 4)
            self._out.put(depth, f"(n,) = {self._out.struct(format)}.unpack_from(b, p)", f"p += {size}")

    def _value(self, field: Field, depth: int, into: str, *, flexible: bool) -> None:
        if field.many:
            self._array(field, depth, into, flexible=flexible)
        elif field.struct is not None:
            self._one_struct(field, field.struct, depth, into)
        elif field.type in FIXED:
            format, size = FIXED[field.type]
            self._out.put(depth, f"({into},) = {self._out.struct(format)}.unpack_from(b, p)", f"p += {size}")
        else:
            self._variable(field.type, depth, into, flexible=flexible, null=field.null)

    def _one_struct(self, field: Field, struct: Struct, depth: int, into: str) -> None:
        local = self._out.fresh()
        if field.null:
            self._out.put(depth, "p += 1", "if b[p - 1] > 127:", f"    {into} = None", "else:")
            depth += 1
        self.struct(struct, depth, local)
        self._out.put(depth, f"{into} = {local}")

    def _null(self, depth: int, into: str, *, null: bool) -> None:
        self._out.put(depth, "if n < 0:", f"    {into} = None" if null else "    raise missing()", "else:")

    def _variable(self, kind: str, depth: int, into: str, *, flexible: bool, null: bool) -> None:
        self._length(depth, flexible=flexible, short=kind in SHORT_LENGTHS)
        self._null(depth, into, null=null)
        self._out.put(depth + 1, "q = p + n", "if q > end:", "    raise short()")
        if kind == "string" and flexible:
            self._out.put(depth + 1, f"if n > {TEXT_BYTES_MAX}:", "    raise long()")
        value = "str(b[p:q], 'utf-8')" if kind == "string" else "b[p:q]"
        self._out.put(depth + 1, f"{into} = {value}", "p = q")

    def _array(self, field: Field, depth: int, into: str, *, flexible: bool) -> None:
        out, items, item = self._out, self._out.fresh(), self._out.fresh()
        self._length(depth, flexible=flexible, short=False)
        self._null(depth, into, null=field.null)
        depth += 1
        if field.struct is not None:
            least = field.struct.bytes_min
        else:
            least = FIXED[field.type][1] if field.type in FIXED else 1 if flexible else 2
        out.put(depth, f"if n * {least} > end - p:", "    raise short()", "room.take(n)")
        if field.type in FIXED and field.type != "uuid":
            format, size = FIXED[field.type]
            out.put(depth, f"{into} = unpack_from('>%d{format}' % n, b, p)", f"p += {size} * n")
            return
        out.put(depth, f"{into} = {items} = []", "for _ in range(n):")
        if field.struct is not None:
            self.struct(field.struct, depth + 1, item)
        elif field.type == "uuid":
            out.put(depth + 1, f"{item} = bytes(b[p:p + 16])", "p += 16")
        else:
            self._variable(field.type, depth + 1, item, flexible=flexible, null=False)
        out.put(depth + 1, f"{items}.append({item})")

    def _tags(self, struct: Struct, depth: int, into: str) -> None:
        out = self._out
        out.put(depth, "n = b[p]", "p += 1", "if n:")
        if not struct.tagged:
            out.put(depth + 1, "p = skip_tags(b, p, n, room)")
            return
        tag, stop = out.fresh(), out.fresh()
        out.put(
            depth + 1,
            "if n > 127:",
            "    n, p = continued(b, p, n)",
            "if 2 * n > end - p:",
            "    raise short()",
            "room.take(n)",
            "for _ in range(n):",
            f"    {tag}, p = unsigned(b, p)",
            "    n, p = unsigned(b, p)",
            f"    {stop} = p + n",
            f"    if {stop} > end:",
            "        raise short()",
        )
        word = "if"
        for field in struct.tagged:
            out.put(depth + 2, f"{word} {tag} == {field.tag}:")
            self._value(field, depth + 3, f"{into}.{field.name}", flexible=True)
            out.put(depth + 3, f"if p != {stop}:", "    raise short()")
            word = "elif"
        out.put(depth + 2, f"p = {stop}")


class Writing:
    """Code that writes one version of a message."""

    def __init__(self, out: Writer) -> None:
        self._out = out

    def struct(self, struct: Struct, depth: int, source: str) -> None:
        """Write one."""
        for run, field in _runs(struct):
            if run:
                format = "".join(FIXED[one.type][0] for one in run)
                values = ", ".join(f"{source}.{one.name}" for one in run)
                self._out.put(depth, f"w += {self._out.struct(format)}.pack({values})")
            if field is not None:
                self._value(field, depth, f"{source}.{field.name}", flexible=struct.flexible)
        if struct.flexible:
            self._tags(struct, depth, source)

    def _length(self, depth: int, length: str, *, flexible: bool, short: bool) -> None:
        out = self._out
        if flexible:
            out.put(depth, f"n = {length} + 1", "if n < 128:", "    w.append(n)", "else:", "    put_unsigned(w, n)")
        else:
            out.put(depth, f"w += {out.struct('h' if short else 'i')}.pack({length})")

    def _value(self, field: Field, depth: int, value: str, *, flexible: bool) -> None:
        out = self._out
        if field.null:
            size = 2 if field.type in SHORT_LENGTHS and not field.many else 4
            nothing = "w.append(255)" if field.struct is not None and not field.many else None
            nothing = nothing or ("w.append(0)" if flexible else f"w += NULL_{size}")
            out.put(depth, f"if {value} is None:", f"    {nothing}", "else:")
            depth += 1
        if field.many:
            self._array(field, depth, value, flexible=flexible)
        elif field.struct is not None:
            if field.null:
                out.put(depth, "w.append(1)")
            self.struct(field.struct, depth, value)
        elif field.type in FIXED:
            out.put(depth, f"w += {out.struct(FIXED[field.type][0])}.pack({value})")
        elif field.type == "string":
            out.put(depth, f"e = {value}.encode()", f"if len(e) > {TEXT_BYTES_MAX}:", "    e = cut(e)")
            self._length(depth, "len(e)", flexible=flexible, short=True)
            out.put(depth, "w += e")
        else:
            self._length(depth, f"len({value})", flexible=flexible, short=False)
            if field.type == "records":
                out.put(depth, "out.append(w)", f"out.append({value})", "w = bytearray()")
            else:
                out.put(depth, f"w += {value}")

    def _array(self, field: Field, depth: int, value: str, *, flexible: bool) -> None:
        out, item = self._out, self._out.fresh()
        self._length(depth, f"len({value})", flexible=flexible, short=False)
        if field.type in FIXED and field.type != "uuid":
            out.put(depth, f"w += pack('>%d{FIXED[field.type][0]}' % len({value}), *{value})")
            return
        out.put(depth, f"for {item} in {value}:")
        if field.struct is not None:
            self.struct(field.struct, depth + 1, item)
        elif field.type == "uuid":
            out.put(depth + 1, f"w += {item}")
        else:
            one = dataclasses.replace(field, many=False, null=False)
            self._value(one, depth + 1, item, flexible=flexible)

    def _tags(self, struct: Struct, depth: int, source: str) -> None:
        out = self._out
        if not struct.tagged:
            out.put(depth, "w.append(0)")
            return
        tests = [_is_there(field, f"{source}.{field.name}") for field in struct.tagged]
        out.put(depth, f"if not ({' or '.join(tests)}):", "    w.append(0)", "else:")
        depth += 1
        whole = out.fresh()
        out.put(depth, f"{whole} = w", f"{whole}.append({' + '.join(f'({test})' for test in tests)})")
        for field, test in zip(struct.tagged, tests, strict=True):
            out.put(depth, f"if {test}:", "    w = bytearray()")
            present = dataclasses.replace(field, null=False)
            self._value(present, depth + 1, f"{source}.{field.name}", flexible=True)
            out.put(depth + 1, f"{whole}.append({field.tag})", f"put_unsigned({whole}, len(w))", f"{whole} += w")
        out.put(depth, f"w = {whole}")


def _is_there(field: Field, value: str) -> str:
    """Whether a tagged field is written, as code."""
    if field.many:
        return f"len({value}) > 0"
    default = default_of(field)
    if default in ("None", "True", "False"):
        return f"{value} is not {default}"
    return f"{value} != {default}"


HEAD: Final = '''"""{title}. Generated by regnum_testing.kafka_wire out of kio's classes; not to be edited."""

from collections.abc import Callable, Sequence
from struct import Struct, pack, unpack_from

from regnum_kafka_wire.primitives import Room, continued, cut, long, missing, put_unsigned, short, skip_tags, unsigned

NO_ID = bytes(16)
NULL_2 = b"\\xff\\xff"
NULL_4 = b"\\xff\\xff\\xff\\xff"
'''


def module_of(message: str, side: str) -> str:
    """The code of one message in all its versions."""
    versions = versions_of(message, side)
    merged = fields_of_all(versions)
    out = Writer()
    for name, fields in merged.items():
        slots = "".join(f'"{field.name}", ' for field in fields).rstrip(" ")
        given = "".join(f", {field.name}: {annotation_of(field)} = {default_of(field)}" for field in fields)
        out.put(
            0, "", "", f"class {name}:", f"    __slots__ = ({slots})", "", f"    def __init__(self{given}) -> None:"
        )
        out.put(2, *(f"self.{field.name} = {field.name}" for field in fields) if fields else ("pass",))
    functions: dict[str, str] = {}
    table: dict[int, str] = {}
    root = versions[max(versions)].name
    verb = "read" if side == "request" else "write"
    for version, struct in versions.items():
        body = Writer()
        body.structs = out.structs
        if side == "request":
            body.put(1, "end = len(b)")
            Reading(body, merged).struct(struct, 1, "m")
            body.put(1, "return m, p")
        else:
            Writing(body).struct(struct, 1, "m")
            body.put(1, "out.append(w)")
        code = "\n".join(body.lines)
        name = functions.setdefault(code, f"{verb}_v{version}")
        table[version] = name
    for code, name in functions.items():
        if side == "request":
            signature = f"def {name}(b: memoryview, p: int, room: Room) -> tuple[{root}, int]:"
        else:
            signature = f"def {name}(m: {root}, out: list[bytes | bytearray | memoryview], w: bytearray) -> None:"
        out.put(0, "", "", signature, code)
    kind = (
        f"Callable[[memoryview, int, Room], tuple[{root}, int]]"
        if side == "request"
        else f"Callable[[{root}, list[bytes | bytearray | memoryview], bytearray], None]"
    )
    out.put(0, "", "", f"VERSIONS: dict[int, {kind}] = {{")
    out.put(1, *(f"{version}: {name}," for version, name in table.items()))
    flexible = [version for version, struct in versions.items() if struct.flexible]
    out.put(0, "}", f"FLEXIBLE_FROM = {min(flexible, default=32767)}")
    constants = "".join(f'{name} = Struct(">{format}")\n' for format, name in out.structs.items())
    return (
        HEAD.format(title=f"{root}, versions {min(versions)} to {max(versions)}")
        + constants
        + "\n".join(out.lines)
        + "\n"
    )
