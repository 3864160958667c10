"""What stands in for others: receivers of metadata, and the offsets that a reader finds in batches."""

import gc

import pytest
from regnum.replication.v1 import control_pb2
from regnum.types.v1 import errors_pb2, types_pb2
from regnum_bench.outage import collected_before, complaints, void
from regnum_bench.propagate import topics
from regnum_bench.receivers import Receiver, head_of
from regnum_bench.shape import Shape
from regnum_bench.throughput import offset_after
from regnum_bench.write_batch import judged
from regnum_local.demo.verdict import Verdict
from regnum_records.build import build_batch
from regnum_records.record import NewRecord


def change(from_version: int, to_version: int, *, epoch: int = 1, parts: int = 1, **other: int) -> list[bytes]:
    """A change as a metadata process sends it: all but topics comes first, and topics alone go on with it."""
    states = list(topics(Shape(topics=2 * parts, partitions=3), leader_epoch=to_version))
    head = control_pb2.UpdateMetadataRequest(
        controller_epoch=epoch,
        from_version=from_version,
        to_version=to_version,
        parts=parts,
        brokers=[types_pb2.Broker(id=1)],
        traceparent="00-trace",
        **other,
    )
    bodies = [control_pb2.UpdateMetadataRequest(topics=states[at : at + 2]) for at in range(0, len(states), 2)]
    first, *others = [body.SerializeToString() for body in bodies]
    return [head.SerializeToString() + first, *others]


def test_the_head_of_a_change_is_read_without_its_topics() -> None:
    # The fields behind the topics, too.
    (part,) = change(4, 5, base_epoch=3, base_version=4)
    head, whole = head_of(part), control_pb2.UpdateMetadataRequest.FromString(part)
    assert len(whole.topics) == 2
    del whole.topics[:]
    assert head == whole


def test_a_message_without_topics_is_all_head() -> None:
    message = control_pb2.UpdateMetadataRequest(controller_epoch=300, from_version=7, to_version=7, parts=1)
    assert head_of(message.SerializeToString()) == message


def test_a_receiver_goes_on_from_the_reign_before_only_where_the_new_one_knows_it() -> None:
    receiver = Receiver(applies=False)
    receiver.take(change(0, 5))
    beyond = receiver.take(change(3, 9, epoch=2, base_epoch=1, base_version=4))
    assert beyond.error_code == errors_pb2.ERROR_CODE_INVALID_REQUEST
    other = Receiver(applies=False)
    other.take(change(0, 5))
    assert other.take(change(3, 9, epoch=2, base_epoch=1, base_version=5)).version == 9


@pytest.mark.parametrize("applies", [True, False])
def test_a_receiver_takes_what_joins_on_and_refuses_what_does_not(applies: bool) -> None:
    receiver = Receiver(applies=applies)
    gap = receiver.take(change(4, 5))
    assert (gap.error_code, gap.version) == (errors_pb2.ERROR_CODE_INVALID_REQUEST, 0)
    assert receiver.take(change(0, 5, parts=2)).version == 5
    assert receiver.take(change(5, 6)).version == 6
    assert receiver.take(change(5, 6)).version == 6
    assert receiver.take(change(0, 1, epoch=2)).version == 1
    assert receiver.take(change(6, 7)).error_code == errors_pb2.ERROR_CODE_STALE_CONTROLLER_EPOCH
    assert [version for version, _, _ in receiver.seen] == [5, 6, 1]
    assert len(receiver.topics) == (2 if applies else 0)


def test_the_question_for_its_version_is_answered_without_a_note() -> None:
    receiver = Receiver(applies=False)
    receiver.take(change(0, 5))
    question = control_pb2.UpdateMetadataRequest(controller_epoch=1, from_version=5, to_version=5, parts=1)
    assert receiver.take([question.SerializeToString()]).version == 5
    assert len(receiver.seen) == 1


def test_reading_goes_on_after_the_last_whole_batch() -> None:
    batch = build_batch([NewRecord(key=None, value=b"x")] * 7, timestamp_ms=1)
    second = (7).to_bytes(8, "big") + batch[8:]
    assert offset_after(batch) == 7
    assert offset_after(batch + second) == 14
    assert offset_after(batch + second[:-1]) == 7
    assert offset_after(b"") == 0


def test_an_outage_says_nothing_on_a_machine_that_pauses_by_itself() -> None:
    quiet = {"gap_s": 0.1, "usual_gap_s": 0.05, "bench_late_s": 0.004}
    busy = {"gap_s": 0.1, "usual_gap_s": 0.051, "bench_late_s": 0.007}
    assert void([quiet, quiet]) == ()
    (reason,) = void([quiet, busy])
    assert reason.startswith("the longest gap without a kill was 51 ms")
    assert reason.endswith("(this process was late by 7 ms at most)")


def test_no_garbage_is_collected_in_the_time_that_counts() -> None:
    collected: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        del info
        collected.append(phase)

    gc.callbacks.append(note)
    try:
        with collected_before():
            assert collected == ["start", "stop"]
            kept = [[number] for number in range(50_000)]
            assert (len(kept), len(collected)) == (50_000, 2)
    finally:
        gc.callbacks.remove(note)
    assert gc.isenabled()


def test_an_outage_that_harmed_records_is_wrong_on_any_machine() -> None:
    assert complaints(Verdict()) == ()
    (harmed,) = complaints(Verdict(lost=(3, 4)))
    assert "2 lost" in harmed


def test_a_limit_is_judged_only_where_the_processors_were_ours() -> None:
    assert judged(1.3, 0.9) == ((), ())
    assert judged(1.31, 0.1) == (("1.31 times the first yardstick, and 1.3 is allowed",), ())
    (complaints, (reason,)) = judged(1.57, 0.42)
    assert complaints == ()
    assert "other programs had 42% of the processors" in reason
