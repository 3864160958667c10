"""What a node knows of its mutations, whatever people make of it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from regnum_model.mutations import (
    ID_LENGTH_MAX,
    KEPT,
    LOG_BYTES_MAX,
    REPEATED_MS,
    RESULT_LENGTH_MAX,
    MutationLog,
    MutationRecord,
    check_id,
    digest_of,
    log_of,
    with_log,
)
from regnum_model.nodes import MalformedNodeError
from regnum_model.rejection import Rejection

NOW_MS = 1_800_000_000_000


def record(id: str, *, at_ms: int = NOW_MS, result: str = "") -> MutationRecord:
    return MutationRecord(id=id, digest=digest_of("set", (id,)), at_ms=at_ms, result=result)


def log(*ids: str) -> MutationLog:
    kept = MutationLog()
    for id in ids:
        kept = kept.add(record(id))
    return kept


def test_the_last_mutations_are_known_and_older_ones_are_not() -> None:
    kept = log(*(f"m{number}" for number in range(KEPT + 3)))
    assert len(kept.records) == KEPT
    assert kept.find("m2") is None
    assert kept.find("m3") == record("m3")
    assert kept.find(f"m{KEPT + 2}") == record(f"m{KEPT + 2}")


def test_a_log_goes_through_the_node_and_leaves_what_the_node_says() -> None:
    data = with_log(b'{"version":1,"config":{"a":"1"}}', log("x", "y").add(record("z", result="expires 7")))
    assert json.loads(data)["config"] == {"a": "1"}
    assert [one.id for one in log_of(data).records] == ["x", "y", "z"]
    assert log_of(data).find("z") == record("z", result="expires 7")
    assert with_log(data, MutationLog()) == b'{"version":1,"config":{"a":"1"}}'


def test_a_full_log_of_the_largest_records_has_a_largest_size() -> None:
    kept = MutationLog()
    for number in range(KEPT):
        id = f"{number:02d}".ljust(ID_LENGTH_MAX, "/")
        kept = kept.add(MutationRecord(id=id, digest="f" * 32, at_ms=2**53, result="/" * RESULT_LENGTH_MAX))
    assert len(kept.records) == KEPT
    assert len(with_log(b'{"version":1}', kept)) < LOG_BYTES_MAX


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"\xff",
        b"[]",
        b'{"mutations":7}',
        b'{"mutations":[7,{},{"id":3},{"id":"a"},{"id":"a","digest":"no"},{"id":"\\u0000","digest":"'
        + b"a" * 32
        + b'"}]}',
        b'{"mutations":' + b"[" * 100_000,
        b'{"mutations":' + b"9" * 10_000 + b"}",
    ],
)
def test_a_log_that_somebody_broke_is_no_log(data: bytes | None) -> None:
    assert log_of(data) == MutationLog()


def test_of_a_broken_log_what_is_whole_is_kept() -> None:
    whole = {"id": "x", "digest": "a" * 32, "at": "yesterday"}
    assert log_of(json.dumps({"mutations": [7, whole, {"id": "y"}]}).encode()).records == (
        MutationRecord(id="x", digest="a" * 32, at_ms=0),
    )


def test_of_a_log_that_somebody_made_long_the_newest_count() -> None:
    many = [{"id": f"m{number}", "digest": "a" * 32, "at": 1} for number in range(50_000)]
    read = MutationLog.read(many)
    assert [one.id for one in read.records] == [f"m{number}" for number in range(50_000 - KEPT, 50_000)]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
def test_whatever_the_list_holds_what_is_read_can_be_written(value: object) -> None:
    read = MutationLog.read(value)
    assert MutationLog.read(read.content()) == read


def test_a_node_that_is_no_object_takes_no_log() -> None:
    with pytest.raises(MalformedNodeError):
        with_log(b"[1]", log("x"))


@pytest.mark.parametrize("id", ["", "a b", "ä", "a" * (ID_LENGTH_MAX + 1), '"', "\n"])
def test_an_id_that_no_node_can_keep_is_refused(id: str) -> None:
    assert isinstance(check_id(id), Rejection)
    with pytest.raises(ValueError, match="mutation id"):
        MutationLog().add(MutationRecord(id=id, digest="a" * 32, at_ms=0))


def test_ids_that_people_and_programs_make_are_taken() -> None:
    for id in (None, "6f9619ff-8b86-d011-b42d-00cf4fc964ff", "a", "a" * ID_LENGTH_MAX, "deploy:2026-11-23/7=="):
        assert check_id(id) is None


def test_what_is_asked_for_has_one_digest_however_it_is_cut() -> None:
    assert digest_of("set", ("a", "b")) != digest_of("set", ("ab",))
    assert digest_of("set", ("a", "")) != digest_of("set", ("a",))
    assert digest_of("set", ("a",)) != digest_of("delete", ("a",))
    assert digest_of("set", ("\ud800",)) == digest_of("set", ("\ud800",))


def test_repeats_are_expected_for_an_hour() -> None:
    kept = MutationLog().add(record("x", at_ms=NOW_MS))
    assert kept.recent(NOW_MS + REPEATED_MS - 1)
    assert not kept.recent(NOW_MS + REPEATED_MS)
    assert not MutationLog().recent(NOW_MS)
