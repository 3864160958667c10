"""What a pause of acknowledgements and a chain say of each other."""

import json

from regnum_insight.attribution.changes import change_of
from regnum_insight.spans.otlp import spans_of
from regnum_telemetry import conventions as names
from regnum_testing.change_traces import FULL_STEPS_MS, FullChangeTrace
from regnum_testing.otlp_lines import BASE_NS, line
from regnum_testing.outages.verdict import Outcome, Pause, compared, longest_pauses, within

WHOLE_MS = sum(FULL_STEPS_MS.values())


def change():
    documents = FullChangeTrace().documents()
    parts = [(process.split(), made) for process, made in documents.items()]
    texts = [line(made, service=service, instance=instance) for (service, instance), made in parts]
    return change_of([span for text in texts for span in spans_of(json.loads(text))])


def pause(partition: str, ms: float) -> Pause:
    return Pause(partition=partition, begin_ns=BASE_NS, end_ns=BASE_NS + round(ms * 1e6))


def outcome(pauses: list[Pause], *, kinds=(names.KIND_BROKER_FAILURE,), stayed=()) -> Outcome:
    end_ns = BASE_NS + 1_000_000_000
    listed = within([change()], BASE_NS, end_ns)
    beside = compared(pauses, listed, quiet_ms=12.0, stayed=stayed)
    return Outcome(
        name="kill", begin_ns=BASE_NS, end_ns=end_ns, quiet_ms=12.0, kinds=kinds, changes=listed, compared=beside
    )


def test_a_chain_that_is_as_long_as_the_pause_holds():
    found = outcome([pause("orders/0", WHOLE_MS + 1.0), pause("orders/1", 25.0)])
    assert found.complaints() == ()
    assert [one.pause.partition for one in found.compared] == ["orders/0"]
    assert found.compared[0].difference_ms == -1.0


def test_a_chain_of_another_length_does_not_hold():
    (said,) = outcome([pause("orders/0", WHOLE_MS + 9.0)]).complaints()
    assert "its chain is" in said


def test_a_pause_without_a_chain_is_told_and_whether_its_leader_stayed():
    found = outcome([pause("orders/9", 80.0)], stayed={"orders/9"})
    assert found.complaints() == ("orders/9 paused 80.0 ms, and no trace tells of it; its leader stayed",)
    assert found.complaints(moved_only=True) == ()


def test_a_kind_that_is_not_listed_is_missed():
    assert outcome([], kinds=(names.KIND_BALANCE,)).complaints() == ("no change of kind 'balance' is listed",)


def test_the_longest_pause_of_each_partition_overlaps_the_time():
    moments = {"t/0": [0, 10, 90, 100], "t/1": [0, 5, 200], "t/2": [400]}
    found = longest_pauses(moments, 50, 95)
    assert [(one.partition, one.begin_ns, one.end_ns) for one in found] == [("t/1", 5, 200), ("t/0", 10, 90)]
