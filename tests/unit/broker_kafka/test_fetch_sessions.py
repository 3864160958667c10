"""Incremental fetch sessions (KIP-227): what is wanted, what is said, and what a connection may hold."""

import gc
import random
import tracemalloc

import pytest
from regnum.types.v1 import errors_pb2
from regnum_broker.kafka.fetch_sessions import (
    BEGINS,
    ENDS,
    EPOCH_MAX,
    OF_SESSION_MAX,
    ConnectionSession,
    Key,
    Place,
    Said,
    Sessions,
    held_bytes,
)

PLACE = Place(0, 1, -1, -1)
A, B, C = (("t", bytes(16), number) for number in range(3))


@pytest.fixture
def sessions() -> Sessions:
    return Sessions(bytes_max=3 * held_bytes(A))


@pytest.fixture
def session(sessions: Sessions) -> ConnectionSession:
    return ConnectionSession(sessions, random.Random(1))


def test_a_session_begins_with_all_partitions_and_goes_on_with_changes(session: ConnectionSession) -> None:
    assert session.wanted(0, BEGINS, {A: PLACE, B: PLACE}, ()) == {A: PLACE, B: PLACE}
    assert session.id
    further = Place(7, 1, -1, -1)
    assert session.wanted(session.id, 1, {A: further}, [B]) == {A: further}
    assert session.wanted(session.id, 2, {}, ()) == {A: further}
    assert session.wanted(session.id, 3, {C: PLACE}, ()) == {A: further, C: PLACE}


def test_a_request_without_a_session_makes_none(session: ConnectionSession, sessions: Sessions) -> None:
    assert session.wanted(0, ENDS, {A: PLACE}, ()) == {A: PLACE}
    assert (session.id, sessions.held_bytes) == (0, 0)


def test_what_is_no_session_of_the_connection_is_refused(session: ConnectionSession) -> None:
    assert session.wanted(5, 1, {}, ()) == errors_pb2.ERROR_CODE_FETCH_SESSION_ID_NOT_FOUND
    session.wanted(0, BEGINS, {A: PLACE}, ())
    assert session.wanted(session.id, 2, {}, ()) == errors_pb2.ERROR_CODE_INVALID_FETCH_SESSION_EPOCH
    assert session.wanted(session.id + 1, 1, {}, ()) == errors_pb2.ERROR_CODE_FETCH_SESSION_ID_NOT_FOUND
    assert session.wanted(session.id, 1, {}, ()) == {A: PLACE}, "what was refused has changed nothing"


def test_an_epoch_follows_the_largest(session: ConnectionSession) -> None:
    session.wanted(0, BEGINS, {A: PLACE}, ())
    session._epoch = EPOCH_MAX
    assert session.wanted(session.id, EPOCH_MAX, {}, ()) == {A: PLACE}
    assert session.wanted(session.id, 1, {}, ()) == {A: PLACE}


def test_only_what_is_new_is_said(session: ConnectionSession) -> None:
    session.wanted(0, BEGINS, {A: PLACE}, ())
    assert session.news(A, Said(5, 0), worth_saying=False), "the first time"
    assert not session.news(A, Said(5, 0), worth_saying=False)
    assert session.news(A, Said(6, 0), worth_saying=False)
    assert session.news(A, Said(6, 1), worth_saying=False)
    assert session.news(A, Said(6, 1), worth_saying=True)
    session.close()
    assert session.news(A, Said(6, 1), worth_saying=False), "without a session all is said"


def test_what_had_records_is_read_behind_the_others(session: ConnectionSession) -> None:
    session.wanted(0, BEGINS, {A: PLACE, B: PLACE, C: PLACE}, ())
    session.served([A])
    assert list(session.wanted(session.id, 1, {}, ())) == [B, C, A]


def test_sessions_hold_no_more_than_they_may(sessions: Sessions) -> None:
    first, second = (ConnectionSession(sessions, random.Random(number)) for number in range(2))
    first.wanted(0, BEGINS, {A: PLACE, B: PLACE}, ())
    assert second.wanted(0, BEGINS, {A: PLACE, B: PLACE}, ()) == {A: PLACE, B: PLACE}
    assert second.id == 0, "it is answered, without a session"
    second.wanted(0, BEGINS, {A: PLACE}, ())
    assert sessions.held_bytes == 3 * held_bytes(A)
    grown = first.wanted(first.id, 1, {C: PLACE}, ())
    assert grown == errors_pb2.ERROR_CODE_FETCH_SESSION_ID_NOT_FOUND, "it has to begin anew"
    assert sessions.held_bytes == held_bytes(A)
    second.close()
    assert sessions.held_bytes == 0


def test_a_session_grows_to_as_many_partitions_as_one_request_may_ask_for() -> None:
    sessions = Sessions()
    session = ConnectionSession(sessions, random.Random(1))
    places = {("t", bytes(16), number): PLACE for number in range(OF_SESSION_MAX)}
    session.wanted(0, BEGINS, places, ())
    assert session.wanted(session.id, 1, {("u", bytes(16), 0): PLACE}, ()) == 70, "FETCH_SESSION_ID_NOT_FOUND"
    assert (session.id, sessions.held_bytes) == (0, 0)


def test_what_is_forgotten_is_held_no_more(session: ConnectionSession, sessions: Sessions) -> None:
    session.wanted(0, BEGINS, {A: PLACE, B: PLACE}, ())
    session.wanted(session.id, 1, {A: PLACE, C: PLACE}, [B, C])
    assert sessions.held_bytes == held_bytes(A)


@pytest.mark.parametrize(("topics", "character"), [(1, "t"), (1_000, "t"), (1_000, chr(0x10000))])
def test_a_session_holds_no_more_than_is_counted(topics: int, character: str) -> None:
    """Of one topic with many partitions, and of many topics with one; names as long as they may be at the door."""
    sessions, said = Sessions(), Said(1 << 40, 1 << 41)
    gc.collect()
    tracemalloc.start()
    try:
        session, named = ConnectionSession(sessions, random.Random(1)), dict[Key, Place]()
        for topic in range(topics):
            name, id = f"{topic:06d}" + character * 243, topic.to_bytes(16, "big")
            for number in range(1_000, 1_000 + 1_000 // topics):
                named[name, id, number] = Place((1 << 40) + number, (1 << 20) + number, 1_000 + number, 1_000 + topic)
        session.wanted(0, BEGINS, named, ())
        for key in named:
            session.news(key, Said(said.high_watermark + key[2], said.log_start + key[2]), worth_saying=True)
        del named, key
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held <= sessions.held_bytes
