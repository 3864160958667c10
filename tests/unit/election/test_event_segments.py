"""The event log on disk: bounded, and readable after whatever happened to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from regnum_election.history.events import BEGINNING, Position
from regnum_election.history.segments import MAGIC, Limits, Record, Segments
from regnum_model.ids import ControllerEpoch

SMALL = Limits(bytes=4_000, events=1_000, segment_bytes=1_000)


def record(epoch: int, number: int, *, events: int = 1, payload: bytes = b"x" * 72) -> Record:
    return Record(first=Position(ControllerEpoch(epoch), number), events=events, payload=payload)


_OPEN: list[Segments] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while _OPEN:
        _OPEN.pop().close()


def opened(folder: Path, limits: Limits = SMALL) -> Segments:
    segments = Segments(folder, limits)
    segments.open()
    _OPEN.append(segments)
    return segments


def numbers(segments: Segments, after: Position = BEGINNING) -> list[int]:
    return [one.first.number for one in segments.forwards(after)]


def test_what_was_appended_is_there_after_a_restart(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.append([record(1, 1), record(1, 2, events=5), record(2, 1)])
    first.close()
    again = opened(tmp_path)
    assert again.last == (2, 1)
    assert [(one.first, one.last) for one in again.forwards(BEGINNING)] == [
        ((1, 1), (1, 1)),
        ((1, 2), (1, 6)),
        ((2, 1), (2, 1)),
    ]
    again.append([record(2, 2)])
    assert [one.first for one in again.backwards(None)] == [(2, 2), (2, 1), (1, 2), (1, 1)]


def test_what_is_not_its_own_is_left_alone(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.append([record(1, 1)])
    first.close()
    (own,) = tmp_path.iterdir()
    guests = ["lost+found.events", ".nfs01.events", f"{own.name}.swp", f"copy of {own.name}", "1-1.events"]
    for name in guests:
        (tmp_path / name).mkdir() if "lost" in name else (tmp_path / name).write_bytes(own.read_bytes())
    (tmp_path / "0000000009-000000000000001.events").mkdir()
    again = opened(tmp_path)
    assert numbers(again) == [1]
    again.begin_anew()
    assert {path.name for path in tmp_path.iterdir()} == {*guests, "0000000009-000000000000001.events"}


def test_the_oldest_goes_when_there_is_too_much(tmp_path: Path) -> None:
    segments = opened(tmp_path)
    for number in range(1, 201):
        segments.append([record(1, number)])
    kept = numbers(segments)
    assert kept[-1] == 200
    assert kept == list(range(kept[0], 201))
    assert segments.bytes <= SMALL.bytes
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= SMALL.bytes


def test_the_oldest_goes_when_there_are_too_many_events(tmp_path: Path) -> None:
    segments = opened(tmp_path, Limits(bytes=10**6, events=500, segment_bytes=500))
    for number in range(20):
        segments.append([record(1, 1 + 100 * number, events=100)])
    kept = list(segments.forwards(BEGINNING))
    assert sum(one.events for one in kept) <= 500
    assert kept[-1].last == (1, 2000)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 700), st.binary(max_size=40))
def test_a_torn_tail_costs_what_was_torn_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, cut: int, rubbish: bytes
) -> None:
    """A kill may leave any part of what was being written, and a full disk may leave rubbish."""
    folder = tmp_path_factory.mktemp("torn")
    first = opened(folder)
    first.append([record(1, number) for number in range(1, 8)])
    first.close()
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole[: max(0, len(whole) - cut)] + rubbish)
    again = opened(folder)
    kept = numbers(again)
    assert kept == list(range(1, len(kept) + 1))
    assert len(kept) >= (len(whole) - cut - len(MAGIC)) // (len(whole[len(MAGIC) :]) // 7) or cut >= len(whole)
    again.append([record(1, 100), record(1, 101)])
    assert numbers(again)[-2:] == [100, 101]
    again.close()
    assert numbers(opened(folder)) == [*kept, 100, 101]
    while _OPEN:
        _OPEN.pop().close()


def test_a_place_to_go_on_from_is_found_in_the_middle(tmp_path: Path) -> None:
    segments = opened(tmp_path)
    segments.append([record(1, 1 + 10 * number, events=10) for number in range(20)])
    assert numbers(segments, Position(ControllerEpoch(1), 150)) == [151, 161, 171, 181, 191]
    assert numbers(segments, Position(ControllerEpoch(1), 155)) == [151, 161, 171, 181, 191]
    assert next(segments.backwards(Position(ControllerEpoch(1), 41))).first == (1, 31)


def test_what_is_newest_is_known_by_its_size(tmp_path: Path) -> None:
    segments = opened(tmp_path)
    segments.append([record(1, number) for number in range(1, 31)])
    after = segments.newest(1_500)
    assert 0 < len(numbers(segments, after)) < 20
    assert segments.newest(10**6) == BEGINNING


def test_files_of_another_form_are_left_alone(tmp_path: Path) -> None:
    strange = tmp_path / "0000000001-000000000000001.events"
    strange.write_bytes(b"RGNEVNT9" + b"of a later release")
    (tmp_path / "notes.txt").write_text("hello")
    segments = opened(tmp_path)
    assert segments.last == BEGINNING
    segments.append([record(3, 1)])
    assert numbers(segments) == [1]
    assert strange.read_bytes().startswith(b"RGNEVNT9")


def test_a_history_that_was_set_back_begins_anew(tmp_path: Path) -> None:
    segments = opened(tmp_path)
    segments.append([record(7, number) for number in range(1, 40)])
    segments.begin_anew()
    segments.append([record(2, 1)])
    assert [one.first for one in segments.forwards(BEGINNING)] == [(2, 1)]
    segments.close()
    assert opened(tmp_path).last == (2, 1)
