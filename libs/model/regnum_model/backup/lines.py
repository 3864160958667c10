"""The file of a backup: JSON lines, each with a checksum of its node, and a last line that vouches for all of them.

    {"regnum_backup":1,"cluster_id":"...","store":"etcd","taken_ms":...,"one_moment":true,"revision":812,...}
    {"path":"/brokers/topics/t","version":3,"json":{...},"crc32":"9a1f0c2e"}
    {"path":"/brokers/ids/1","version":0,"json":{...},"crc32":"...","live":true}
    {"end":{"nodes":2,"sha256":"..."}}

Goals: a person can read it and ``jq`` too; a file that was cut off, or changed by a byte, is refused before anything is
written; neither writing nor reading holds more than one line.

A node's content stands as ``json`` where that gives its bytes back exactly, else as ``text``, else as ``base64``.
``live`` marks what belongs to a process that ran then: it tells which logs there were, and is never restored. The
``sha256`` is that of all lines before the last one, with their line ends.
"""

import base64
import binascii
import hashlib
import json
import zlib
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from regnum_model.nodes.reading import dumped

FORMAT: Final = 1
"""Version of the format. A later one is refused by whoever does not know it."""

TAKEN_MS_MAX: Final = 253_402_300_799_000
"""The end of the year 9999: no time of day comes after it."""

CLUSTER_ID_BYTES_MAX: Final = 4096
"""It is written last of all: what no store takes is found out before anything is written."""


class MalformedBackupError(ValueError):
    """The file is no whole backup; the message says where and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line."""

    cluster_id: str
    """Cluster whose tree it is."""
    store: str
    """Kind of the store: etcd, zookeeper or memory."""
    taken_ms: int
    """When the reading began, in ms since 1970."""
    one_moment: bool
    """Whether all nodes are of one moment; where not, each is as it was at some time of the reading."""
    revision: int | None
    """That moment's revision; None where the store has none."""
    regnum: str
    """Version of the program that took it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A node."""

    path: str
    """Absolute path."""
    data: bytes
    """Content."""
    version: int
    """Version that it had, for people."""
    live: bool = False
    """Whether it was the node of a process that ran; never restored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The last line, found true."""

    nodes: int
    """Nodes of the backup."""
    sha256: str
    """Of all lines before it, in hex."""


class LineWriter:
    """Makes the lines of one backup, in order: ``header``, ``entry`` for each node, ``end``."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._nodes = 0

    def header(self, header: Header) -> bytes:
        """The first line."""
        content = {
            "regnum_backup": FORMAT,
            "cluster_id": header.cluster_id,
            "store": header.store,
            "taken_ms": header.taken_ms,
            "one_moment": header.one_moment,
            "revision": header.revision,
            "regnum": header.regnum,
        }
        return self._line(content)

    def entry(self, entry: Entry) -> bytes:
        """The line of a node."""
        content: dict[str, object] = {"path": entry.path, "version": entry.version}
        content.update(_shown(entry.data))
        content["crc32"] = _checksum(entry)
        if entry.live:
            content["live"] = True
        self._nodes += 1
        return self._line(content)

    def end(self) -> bytes:
        """The last line."""
        return _last_line(End(nodes=self._nodes, sha256=self._sha256.hexdigest())) + b"\n"

    def _line(self, content: object) -> bytes:
        line = dumped(content) + b"\n"
        self._sha256.update(line)
        return line


class LineReader:
    """Takes the lines of one backup, in order, and ``finish`` at the end of the file."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._number = 0
        self._nodes = 0
        self._end: End | None = None

    def take(self, line: bytes) -> Header | Entry | End:
        """What a line says. Raises MalformedBackupError."""
        self._number += 1
        if self._end is not None:
            raise self._bad("something stands behind the last line")
        try:
            content = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise self._bad(f"not JSON: {error}") from None
        if not isinstance(content, dict):
            raise self._bad("not a JSON object")
        if self._number == 1:
            header = self._header(content)
            self._sha256.update(line)
            return header
        if "end" in content:
            self._end = self._read_end(line)
            return self._end
        self._sha256.update(line)
        return self._entry(content)

    def finish(self) -> End:
        """What the last line said. Raises MalformedBackupError where there is none."""
        if self._end is None:
            raise MalformedBackupError(
                f"the backup ends after line {self._number}, without its last line: it was cut off; take another one"
            )
        return self._end

    def _header(self, content: dict[str, Any]) -> Header:
        format_ = content.get("regnum_backup")
        if type(format_) is not int:
            raise self._bad("not a backup of Regnum: the first line has no regnum_backup")
        if not 1 <= format_ <= FORMAT:
            raise self._bad(f"a backup of format {format_}, and this program reads up to {FORMAT}; use a later one")
        header = Header(
            cluster_id=self._of(content, "cluster_id", str),
            store=self._of(content, "store", str),
            taken_ms=self._of(content, "taken_ms", int),
            one_moment=self._of(content, "one_moment", bool),
            revision=None if content.get("revision") is None else self._of(content, "revision", int),
            regnum=self._of(content, "regnum", str),
        )
        if not 0 <= header.taken_ms <= TAKEN_MS_MAX:
            raise self._bad("taken_ms is no time of day")
        if not 1 <= len(self._bytes_of("the id of the cluster", header.cluster_id)) <= CLUSTER_ID_BYTES_MAX:
            raise self._bad(f"the id of the cluster has no bytes, or more than {CLUSTER_ID_BYTES_MAX}")
        return header

    def _entry(self, content: dict[str, Any]) -> Entry:
        path = self._of(content, "path", str)
        version = self._of(content, "version", int)
        live = content.get("live", False)
        entry = Entry(path=path, data=self._data(content), version=version, live=live is True)
        if content.get("crc32") != _checksum(entry):
            raise self._bad(f"the checksum of {path} is wrong: the file was changed or is damaged; use another one")
        self._nodes += 1
        return entry

    def _data(self, content: dict[str, Any]) -> bytes:
        if "json" in content:
            try:
                return dumped(content["json"])
            except RecursionError:
                # It is encoded with fewer levels than it is decoded with.
                raise self._bad("the node is nested too deeply") from None
        if "text" in content:
            return self._bytes_of("the text", self._of(content, "text", str))
        try:
            return base64.b64decode(self._of(content, "base64", str), validate=True)
        except (binascii.Error, ValueError):
            raise self._bad("base64 cannot be read") from None

    def _bytes_of(self, what: str, text: str) -> bytes:
        try:
            return text.encode("utf-8")
        except UnicodeEncodeError:
            raise self._bad(f"{what} has half a character") from None

    def _read_end(self, line: bytes) -> End:
        """Compared to the byte, as all lines before are by what it says: no other byte is in the file."""
        end = End(nodes=self._nodes, sha256=self._sha256.hexdigest())
        if line.removesuffix(b"\n") != _last_line(end):
            raise self._bad("the file is not what its last line vouches for: it was changed or is damaged")
        return end

    def _of(self, content: dict[str, Any], name: str, kind: type) -> Any:
        value = content.get(name)
        if type(value) is not kind:
            raise self._bad(f"{name} is missing, or not of type {kind.__name__}")
        return value

    def _bad(self, reason: str) -> MalformedBackupError:
        return MalformedBackupError(f"line {self._number}: {reason}")


def _last_line(end: End) -> bytes:
    return dumped({"end": {"nodes": end.nodes, "sha256": end.sha256}})


def _checksum(entry: Entry) -> str:
    """Of path, mark and content: a line that was put together from two others is found."""
    head = f"{entry.path}\0{int(entry.live)}\0".encode("utf-8", errors="surrogatepass")
    return f"{zlib.crc32(entry.data, zlib.crc32(head)):08x}"


def _shown(data: bytes) -> dict[str, object]:
    """The content, in the most readable form that gives exactly these bytes back."""
    if not data:
        return {"text": ""}
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}
    try:
        content = json.loads(text, parse_constant=_not_json)
        if dumped(content) == data:
            return {"json": content}
    except (ValueError, RecursionError):
        pass
    return {"text": text}


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
