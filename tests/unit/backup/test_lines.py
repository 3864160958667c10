"""The file of a backup: every byte comes back, and nothing that was changed or cut off is taken for whole."""

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_model.backup.lines import End, Entry, Header, LineReader, LineWriter, MalformedBackupError

HEADER = Header(cluster_id="c", store="etcd", taken_ms=7, one_moment=True, revision=812, regnum="0.1.0")
ENTRIES = (
    Entry(path="/brokers/topics/t", data=b'{"version":1,"partitions":{"0":[1]}}', version=3),
    Entry(path="/brokers/ids/1", data=b"{}", version=0, live=True),
    Entry(path="/config/cluster", data=b"not JSON", version=9),
    Entry(path="/acl/x", data=b"\xff\x00", version=0),
    Entry(path="/admin", data=b"", version=0),
)


def _lines(entries: tuple[Entry, ...] = ENTRIES) -> list[bytes]:
    writer = LineWriter()
    return [writer.header(HEADER), *(writer.entry(one) for one in entries), writer.end()]


def _read(lines: list[bytes]) -> list[Header | Entry | End]:
    reader = LineReader()
    found = [reader.take(line) for line in lines]
    reader.finish()
    return found


def test_a_backup_comes_back_as_it_was() -> None:
    header, *entries, end = _read(_lines())
    assert header == HEADER
    assert tuple(entries) == ENTRIES
    assert isinstance(end, End)
    assert end.nodes == len(ENTRIES)


def test_a_person_can_read_it() -> None:
    lines = [json.loads(line) for line in _lines()]
    assert lines[1]["json"] == {"version": 1, "partitions": {"0": [1]}}
    assert lines[3]["text"] == "not JSON"
    assert lines[4]["base64"] == "/wA="


@given(
    st.binary(max_size=60)
    | st.text(max_size=40).map(str.encode)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    ).map(lambda value: json.dumps(value, separators=(",", ":")).encode())
)
def test_any_content_comes_back_to_the_byte(data: bytes) -> None:
    entry = Entry(path="/config/topics/t", data=data, version=0)
    assert _read(_lines((entry,)))[1] == entry


@given(st.data())
def test_a_changed_byte_is_found_before_the_end(data: st.DataObject) -> None:
    whole = b"".join(_lines())
    place = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:place] + bytes([data.draw(st.integers(0, 255).filter(lambda one: one != whole[place]))])
    with pytest.raises(MalformedBackupError):
        _read((changed + whole[place + 1 :]).splitlines(keepends=True))


@pytest.mark.parametrize("byte", [b" ", b"\t", b"\r"])
def test_a_last_line_that_ends_otherwise_is_found(byte: bytes) -> None:
    *lines, last = _lines()
    with pytest.raises(MalformedBackupError, match="vouches for"):
        _read([*lines, last[:-1] + byte])
    assert isinstance(_read([*lines, last[:-1]])[-1], End)


@given(st.integers(0, 2_000))
def test_a_file_that_was_cut_off_is_refused(kept: int) -> None:
    whole = b"".join(_lines())
    with pytest.raises(MalformedBackupError):
        _read(whole[: min(kept, len(whole) - 2)].splitlines(keepends=True))


def test_lines_in_another_order_are_refused() -> None:
    lines = _lines()
    lines[1], lines[2] = lines[2], lines[1]
    with pytest.raises(MalformedBackupError, match="last line"):
        _read(lines)


def test_a_later_format_and_another_file_are_refused_by_name() -> None:
    with pytest.raises(MalformedBackupError, match="format 2"):
        LineReader().take(b'{"regnum_backup":2}\n')
    with pytest.raises(MalformedBackupError, match="not a backup"):
        LineReader().take(b"{}\n")
    with pytest.raises(MalformedBackupError, match="cut off"):
        LineReader().finish()


def _vouched(*lines: bytes) -> list[bytes]:
    """With a last line that vouches for them, as somebody writes it who knows the format."""
    content = b"".join(lines)
    end = {"end": {"nodes": len(lines) - 1, "sha256": hashlib.sha256(content).hexdigest()}}
    return [*lines, json.dumps(end).encode() + b"\n"]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("cluster_id", "\ud800", "half a character"),
        ("cluster_id", "c" * 5000, "more than 4096"),
        ("cluster_id", "", "no bytes"),
        ("cluster_id", 7, "cluster_id"),
        ("taken_ms", 10**30, "no time of day"),
        ("taken_ms", -1, "no time of day"),
        ("taken_ms", True, "taken_ms"),
        ("regnum_backup", 0, "format 0"),
        ("regnum_backup", 2, "use a later one"),
    ],
)
def test_what_could_not_be_used_at_the_end_of_a_restore_is_refused_at_its_beginning(
    field: str, value: object, reason: str
) -> None:
    header = {**json.loads(_lines()[0]), field: value}
    with pytest.raises(MalformedBackupError, match=reason):
        _read(_vouched(json.dumps(header).encode() + b"\n"))


def test_a_node_of_any_depth_is_refused_with_words() -> None:
    """What can just be decoded cannot be encoded again."""
    for depth in (10, 100, *range(800, 1000), 2_000, 100_000):
        node = b'{"a":' * depth + b"1" + b"}" * depth
        line = b'{"path":"/config/x","version":0,"json":' + node + b',"crc32":"0"}\n'
        with pytest.raises(MalformedBackupError, match="line 2"):
            _read(_vouched(_lines()[0], line))
