"""Which promises hold, from what was seen."""

import dataclasses

from regnum_testing.kubernetes.observed import (
    Attempt,
    BelowMinimum,
    Disturbance,
    Gate,
    Kind,
    Observed,
    PodChange,
    ReadBack,
    Second,
    Stall,
)
from regnum_testing.kubernetes.report import as_json, as_table
from regnum_testing.kubernetes.timeline import as_svg, ready_times
from regnum_testing.kubernetes.verdict import BACK_NOTE, DENIALS, HANDSHAKES, Row, rows

RIGHT = ReadBack(
    acknowledged=100,
    failed=0,
    found=100,
    lost=0,
    doubled=0,
    moved=0,
    out_of_order=0,
    invented=0,
    read_again=0,
    states=12,
)
BELOW = "partitions below min.insync.replicas in restarts and drains"


def disturbance(kind: Kind, begin: float, end: float, **notes: float | str) -> Disturbance:
    return Disturbance(
        kind=kind,
        what="regnum-broker",
        begin=begin,
        end=end,
        settled=True,
        notes={k.replace("_", " "): v for k, v in notes.items()},
    )


SEEN = Observed(
    overlay="deploy/k8s/overlays/dev",
    ready_s=11.0,
    disturbances=(disturbance(Kind.ROLLING, 100, 150), disturbance(Kind.FORCE, 200, 230)),
    stalls=(Stall(partition=1, begin=110.0, end=110.9), Stall(partition=2, begin=205.0, end=207.9)),
    below=(),
    seconds=(Second(at=99.0, acked=1, failed=0, worst_ms=3, silent_ms=4, late_ms=2, under_replicated=0, controller=1),),
    pods=(),
    read_back=RIGHT,
    machine={"processors here": 2},
)


def broken(observed: Observed) -> list[str]:
    """Promises that do not hold."""
    return [one.promise for one in rows(observed) if not one.holds]


def row(observed: Observed, begins: str) -> Row:
    return next(one for one in rows(observed) if one.promise.startswith(begins))


def test_every_promise_holds_where_nothing_is_wrong() -> None:
    assert broken(SEEN) == []
    assert len(rows(SEEN)) == 7


def test_stalls_count_for_what_was_done_while_they_were() -> None:
    assert row(SEEN, "longest stall, 1 x rolling").result == "0.90 s"
    assert row(SEEN, "longest stall, 1 x force").result == "2.90 s"


def test_a_stall_of_a_second_breaks_the_promise_about_restarts_and_not_the_one_about_force() -> None:
    longer = dataclasses.replace(
        SEEN, stalls=(Stall(partition=0, begin=120, end=121.01), Stall(partition=0, begin=201, end=203))
    )
    assert broken(longer) == ["longest stall, 1 x rolling restart"]


def test_a_stall_that_outlives_what_began_it_counts_for_both() -> None:
    over = dataclasses.replace(SEEN, stalls=(Stall(partition=0, begin=149, end=204),))
    assert broken(over) == ["longest stall, 1 x rolling restart", "longest stall, 1 x force"]


def test_every_kind_of_wrong_record_breaks_the_promise_about_records() -> None:
    for field in ("lost", "doubled", "moved", "out_of_order", "invented", "read_again"):
        wrong = dataclasses.replace(SEEN, read_back=dataclasses.replace(RIGHT, **{field: 1}))
        assert broken(wrong) == ["records lost, doubled, moved, out of order"], field


def test_a_produce_that_was_given_up_breaks_its_promise() -> None:
    assert broken(dataclasses.replace(SEEN, read_back=dataclasses.replace(RIGHT, failed=1))) == ["produces given up"]


def test_a_load_that_did_not_end_and_one_that_wrote_nothing_prove_nothing() -> None:
    assert broken(dataclasses.replace(SEEN, read_back=None)) == ["the load comes to its end", BELOW]
    empty = dataclasses.replace(RIGHT, acknowledged=0, found=0)
    assert broken(dataclasses.replace(SEEN, read_back=empty)) == ["records lost, doubled, moved, out of order"]


def test_a_run_that_was_broken_off_proves_nothing() -> None:
    assert broken(dataclasses.replace(SEEN, broken_off="no answer")) == ["all that was wanted is done"]


def test_a_partition_below_its_minimum_breaks_the_promise_in_restarts_only() -> None:
    at_force = BelowMinimum(topic="judge-load", partition=3, begin=201, end=202, in_sync=1)
    assert broken(dataclasses.replace(SEEN, below=(at_force,))) == []
    at_restart = dataclasses.replace(at_force, begin=120, end=120.1)
    found = dataclasses.replace(SEEN, below=(at_restart, at_force))
    assert broken(found) == [BELOW]
    assert row(found, "partitions below").result == "1, for 0.1 s at most"


def test_that_no_partition_was_below_its_minimum_needs_somebody_who_looked() -> None:
    unseen = dataclasses.replace(SEEN, read_back=dataclasses.replace(RIGHT, states=0))
    assert broken(unseen) == [BELOW]
    assert row(unseen, "partitions below").result == "no state of a partition was told"
    nobody_moves = dataclasses.replace(unseen, disturbances=(disturbance(Kind.STORE_AWAY, 100, 150),))
    assert broken(nobody_moves) == [], "without the store nothing changes that could be told"


def change(at: float, *, ready: bool = True, restarts: int = 0, uid: str = "a", gone: bool = False) -> PodChange:
    return PodChange(at=at, pod="regnum-broker-0", uid=uid, ready=ready, restarts=restarts, gone=gone)


def test_a_container_that_restarts_in_its_pod_is_counted_and_a_new_pod_is_not() -> None:
    new_pod = dataclasses.replace(SEEN, pods=(change(90), change(110, gone=True, ready=False), change(112, uid="b")))
    assert broken(new_pod) == []
    restarted = dataclasses.replace(SEEN, pods=(change(90, restarts=1), change(110, restarts=3)))
    assert broken(restarted) == ["containers restarted unasked"]
    assert row(restarted, "containers restarted").result == "2"


def test_a_stopped_process_is_back_in_time_or_the_promise_is_broken() -> None:
    back = dataclasses.replace(SEEN, disturbances=(disturbance(Kind.STOPPED, 1, 90, **{BACK_NOTE: 44.0}),))
    assert broken(back) == []
    late = dataclasses.replace(SEEN, disturbances=(disturbance(Kind.STOPPED, 1, 90, **{BACK_NOTE: 46.0}),))
    never = dataclasses.replace(SEEN, disturbances=(disturbance(Kind.STOPPED, 1, 90),))
    assert broken(late) == broken(never) == ["a stopped process's Pod is Ready again"]


def test_what_was_not_well_again_is_named() -> None:
    ill = dataclasses.replace(SEEN.disturbances[0], settled=False)
    found = dataclasses.replace(SEEN, disturbances=(ill,))
    assert broken(found) == ["everything Ready and in sync again after each"]
    assert "rolling restart of regnum-broker" in row(found, "everything Ready").result


def test_the_table_says_what_holds_and_the_json_has_all_of_it() -> None:
    seen = dataclasses.replace(SEEN, stalls=(Stall(partition=0, begin=120, end=123.5),))
    table = as_table(seen, rows(seen))
    assert "| longest stall, 1 x rolling restart | 1 s | 3.50 s | NO |" in table
    assert '"holds": false' in as_json(seen, rows(seen))
    assert '"kind": "rolling restart"' in as_json(seen, rows(seen))


def test_a_load_that_was_late_itself_is_said() -> None:
    late = dataclasses.replace(SEEN.seconds[0], late_ms=700)
    assert "700 ms late" in as_table(dataclasses.replace(SEEN, seconds=(late,)), rows(SEEN))
    assert "late" not in as_table(SEEN, rows(SEEN))


def test_the_picture_escapes_names_and_shows_every_pod() -> None:
    odd = dataclasses.replace(SEEN, overlay="<&>", pods=(change(100), change(120, ready=False), change(130, uid="b")))
    svg = as_svg(odd)
    assert "&lt;&amp;&gt;" in svg
    assert "<&>" not in svg
    assert svg.count("regnum-broker-0: Ready") == 2


def test_a_pod_is_ready_from_when_it_was_seen_so_until_it_was_not_or_went() -> None:
    changes = [change(1, ready=False), change(2), change(5, ready=False, gone=True), change(4, uid="b")]
    assert sorted(ready_times(changes, 9.0)) == [(2, 5), (4, 9.0)]


def attempt(gate: Gate, *, connected: bool = True, done: bool = False, reason: str = "", count: float = 0) -> Attempt:
    counted = {HANDSHAKES: count if gate is Gate.HANDSHAKE else 0, DENIALS: count if gate is Gate.RULES else 0}
    return Attempt(
        what=gate.name, gate=gate, connected=connected, done=done, reason=reason, message="words", counted=counted
    )


def test_who_is_refused_is_refused_by_what_should_and_with_its_reason() -> None:
    denied = "CLUSTER_AUTHORIZATION_FAILED"
    right = (
        attempt(Gate.NETWORK, connected=False),
        attempt(Gate.HANDSHAKE, reason="BROKER_NOT_AVAILABLE", count=2),
        attempt(Gate.RULES, reason=denied, count=1),
    )
    assert broken(dataclasses.replace(SEEN, attempts=right)) == []
    wrong = {
        "NETWORK is refused": (attempt(Gate.NETWORK, reason=denied),),
        "HANDSHAKE is refused": (
            attempt(Gate.HANDSHAKE, connected=False),  # nothing of ours refused it
            attempt(Gate.HANDSHAKE, reason="BROKER_NOT_AVAILABLE"),  # and nothing counted it
            attempt(Gate.HANDSHAKE, done=True, count=1),
        ),
        "RULES is refused": (
            attempt(Gate.RULES, reason="REQUEST_TIMED_OUT", count=1),
            attempt(Gate.RULES, reason=denied),
            attempt(Gate.RULES, done=True, count=1),
        ),
    }
    for promise, attempts in wrong.items():
        for one in attempts:
            assert broken(dataclasses.replace(SEEN, attempts=(one,))) == [promise]
    assert '"gate": "access rules"' in as_json(dataclasses.replace(SEEN, attempts=right), ())
