"""What the traces say beside what the client saw."""

from dataclasses import replace

from regnum_local.demo.report import timeline_tables
from regnum_local.demo.timeline import Outage, match

LEADER = Outage(
    victim="broker 2, a leader", process="broker 2", of_leaders=True, partitions=3, client_s=0.300, successor_s=0.2
)
CONTROLLER = replace(LEADER, victim="election 1, the controller", process="controller 1", of_leaders=False)


def row(
    victim: str, *, start_ns: int = 1, outage_ms: float | None = 290.0, total_ms: float = 250.0
) -> dict[str, object]:
    stages_ms = {"detection": 200.0, "fence": 50.0}
    return {
        "victim": victim,
        "kind": "broker failure",
        "planned": False,
        "start_ns": start_ns,
        "stages_ms": stages_ms,
        "total_ms": total_ms,
        "outage_ms": outage_ms,
    }


def test_both_sides_agree() -> None:
    leader, controller = match([LEADER, CONTROLLER], [row("controller 1", outage_ms=None), row("broker 2")])
    assert (leader.complaints, controller.complaints) == ((), ())
    assert leader.traced_outage_ms == 290.0


def test_every_kill_has_its_own_row_the_oldest_first() -> None:
    rows = [row("broker 2", start_ns=9, outage_ms=310.0), row("broker 2", start_ns=5), row("broker 3")]
    first, second, third = match([LEADER, LEADER, LEADER], rows)
    assert (first.traced_outage_ms, second.traced_outage_ms) == (290.0, 310.0)
    assert third.complaints == ("no trace of the death of broker 2",)


def test_stages_that_do_not_add_up() -> None:
    (timeline,) = match([LEADER], [row("broker 2", total_ms=251.1)])
    assert timeline.complaints == ("broker 2: the stages add up to 250.0 ms, not to 251.1 ms",)
    (timeline,) = match([LEADER], [row("broker 2", total_ms=250.9)])
    assert not timeline.complaints


def test_outages_that_differ() -> None:
    (timeline,) = match([LEADER], [row("broker 2", outage_ms=279.0)])
    assert timeline.complaints == ("broker 2: 279 ms without an ack in the traces, 300 ms seen",)
    (timeline,) = match([LEADER], [row("broker 2", outage_ms=None)])
    assert timeline.complaints == ("broker 2: no producer left a span of its outage",)


def test_a_planned_move_stands_beside_the_kills() -> None:
    move = replace(LEADER, victim="preferred leaders", process="", planned="election by request")
    of_move = {**row("broker 2", outage_ms=295.0), "kind": "election by request", "planned": True}
    killed, moved, untraced = match([LEADER, move, move], [of_move, row("broker 2", start_ns=7)])
    assert (killed.traced_outage_ms, moved.traced_outage_ms) == (290.0, 295.0)
    assert (killed.complaints, moved.complaints) == ((), ())
    assert untraced.complaints == ("no trace of the planned move",)
    (table,) = timeline_tables([killed, moved])
    assert [str(column.header) for column in table.columns] == ["until the end of", "broker 2", "election by request"]


def test_a_planned_move_explains_no_more_than_was_waited_and_perhaps_less() -> None:
    move = replace(LEADER, victim="preferred leaders", process="", planned="election by request")
    of_move = {**row("broker 2"), "kind": "election by request", "planned": True}
    less, more = (match([move], [{**of_move, "outage_ms": ms}])[0] for ms in (200.0, 321.0))
    assert not less.complaints
    assert more.complaints == ("preferred leaders: 321 ms without an ack in the traces, 300 ms seen",)
