"""One trace for a failover, from the broken lifeline to the producer's first acknowledgement, over real processes."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from regnum_client import TopicPartition
from regnum_insight.attribution.changes import SELECTION, Change, change_of, trace_of
from regnum_insight.engine import analyse
from regnum_insight.spans.intake import read_folder
from regnum_insight.spans.span import Span
from regnum_local.cluster import LocalCluster
from regnum_local.demo.verdict import longest_gap_s
from regnum_local.plan import TRACES
from regnum_telemetry import conventions, setup, tracing
from regnum_testing.under_load import under_load, until

ELECTION = "regnum-election"

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]


def _spans(folder: Path) -> list[dict[str, Any]]:
    """Spans with ``service`` and ``told`` (their attributes as text)."""
    found: list[dict[str, Any]] = []
    for file in folder.glob("*.jsonl"):
        for line in file.read_text("utf-8").splitlines():
            for resource in json.loads(line)["resourceSpans"]:
                about = _told(resource["resource"]["attributes"])
                for scope in resource["scopeSpans"]:
                    for span in scope["spans"]:
                        told = _told(span.get("attributes", ()))
                        found.append({**span, "service": about[conventions.SERVICE_NAME], "told": told})
    return found


def _roots(spans: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Roots of that kind that are about any partition."""
    roots = [span for span in spans if span["name"] == conventions.LEADERSHIP_CHANGE]
    return [
        span
        for span in roots
        if span["told"][conventions.CHANGE_KIND] == kind and span["told"][conventions.PARTITIONS] != "0"
    ]


def _epoch_before(outage: dict[str, Any]) -> str:
    return str(outage["told"][conventions.LAST_ACK_LEADER_EPOCH])


def _told(attributes: Any) -> dict[str, str]:
    return {item["key"]: str(next(iter(item["value"].values()))) for item in attributes}


async def test_a_killed_leader_leaves_one_trace_from_its_cause_to_the_first_acknowledgement(
    cluster: LocalCluster,
) -> None:
    folder = cluster.data_dir / TRACES
    before = tracing.tracer()
    telemetry = setup.start("regnum-load", "1", traces_dir=folder)
    try:
        async with under_load(cluster, "traced", partitions=3) as running:
            outage = await running.stage.kill_leader(TopicPartition("traced", 0))

            async def written() -> bool:
                names = {span["name"] for span in _spans(folder)}
                return {conventions.OUTAGE, conventions.LEADERSHIP_CHANGE} <= names

            await until(written)
            for name in tuple(running.stage.killed):
                await running.stage.restart(name)
            await running.stage.all_in_sync()
            assert (await running.judged()).clean
            acknowledged_s = {partition: history.moments for partition, history in running.load.histories.items()}
    finally:
        telemetry.close()
        tracing.use(before)
    wall_s = time.time() - time.monotonic()
    spans = _spans(folder)
    (root,) = _roots(spans, conventions.KIND_BROKER_FAILURE)
    assert "parentSpanId" not in root
    trace = [span for span in spans if span["traceId"] == root["traceId"]]
    ids = {span["spanId"] for span in trace}
    assert all(span.get("parentSpanId") in ids for span in trace if span is not root)
    by_service = {span["service"] for span in trace}
    assert by_service == {"regnum-election", "regnum-broker", "regnum-metadata", "regnum-load"}
    names = {span["name"] for span in trace}
    for expected in (
        conventions.CHANGE_OPENED,
        conventions.DETECTION,
        conventions.FENCE,
        conventions.DECISION,
        conventions.STORE_WRITE,
        conventions.ORDER,
        conventions.LEADER_AND_ISR,
        conventions.BECOME_LEADER,
        conventions.METADATA_APPLIED,
        conventions.FIRST_APPEND,
        conventions.PUBLISH_CHANGES,
        conventions.OUTAGE,
    ):
        assert expected in names, expected
    assert root["told"][conventions.CAUSE] == conventions.CAUSE_LIFELINE
    assert root["told"][conventions.COMPLETE] == "True"
    assert root["spanId"] == root["traceId"][16:]
    moments = [
        int(root["startTimeUnixNano"]),
        int(root["told"][conventions.NOTICED_UNIX_NANO]),
        *(int(root["told"][stage.root_attribute]) for stage in conventions.FAILOVER_STAGES if stage.root_attribute),
        int(root["endTimeUnixNano"]),
    ]
    assert moments == sorted(moments)
    # It ends after what its leaders said of the first acknowledgements, which is before the producers heard of them.
    acknowledged = [int(span["endTimeUnixNano"]) for span in trace if span["name"] == conventions.OUTAGE]
    assert int(root["told"][conventions.ACKNOWLEDGED_UNIX_NANO]) <= min(moments[-1], max(acknowledged))
    orders = {span["spanId"] for span in trace if span["name"] == conventions.ORDER}
    calls = [span for span in trace if span["name"] == conventions.LEADER_AND_ISR and span["service"] == ELECTION]
    assert all(call["parentSpanId"] in orders for call in calls)
    outages = [span for span in trace if span["name"] == conventions.OUTAGE]
    moved = [span for span in outages if _epoch_before(span) != span["told"][conventions.LEADER_EPOCH]]
    assert len(moved) == outage.partitions
    for span in moved:
        # The client's own share: when it learned of the new leader, and when it sent what was acknowledged.
        client = [
            int(span["startTimeUnixNano"]),
            int(span["told"][conventions.LEARNED_UNIX_NANO]),
            int(span["told"][conventions.SENT_UNIX_NANO]),
            int(span["endTimeUnixNano"]),
        ]
        assert client == sorted(client)
    # All are the root's, and linked to the order: to that which took a replica out of the ISR where the leader stayed.
    served = {span["spanId"] for span in trace if span["name"] == conventions.LEADER_AND_ISR}
    assert {span["parentSpanId"] for span in outages} == {root["spanId"]}
    assert {link["spanId"] for span in outages for link in span["links"]} <= served
    # The leader's part of the call with which a producer came back lies below the producer's; and so, where the leader
    # stayed, does that of the call that waited for the replica.
    sends = {span["spanId"]: span for span in trace if span["name"].startswith("send ")}
    answers = [span for span in trace if span["name"] == conventions.FIRST_ANSWER and span["parentSpanId"] in sends]
    answered = {sends[span["parentSpanId"]]["parentSpanId"] for span in answers}
    assert {span["spanId"] for span in moved} <= answered <= {span["spanId"] for span in outages}
    assert {span["service"] for span in answers} == {"regnum-broker"}
    # The load, too, had no acknowledgement for so long; it hears of each a moment after the producer.
    for span in moved:
        begin_s, end_s = int(span["startTimeUnixNano"]) / 1e9 - wall_s, int(span["endTimeUnixNano"]) / 1e9 - wall_s
        partition = TopicPartition(span["told"][conventions.TOPIC], int(span["told"][conventions.PARTITION]))
        middle_s = (begin_s + end_s) / 2
        gap_s = longest_gap_s(acknowledged_s[partition], begin=middle_s, end=middle_s)
        assert end_s - begin_s == pytest.approx(gap_s, abs=0.1)


async def test_a_killed_controller_leaves_a_trace_of_its_succession(cluster: LocalCluster) -> None:
    folder = cluster.data_dir / TRACES
    async with under_load(cluster, "succeeded") as running:
        look = await running.stage.look()
        await running.stage.kill_controller()

        async def written() -> bool:
            return bool(_roots(_spans(folder), conventions.KIND_SUCCESSION))

        await until(written)
        assert (await running.judged()).clean
    spans = _spans(folder)
    (root,) = _roots(spans, conventions.KIND_SUCCESSION)
    assert root["told"][conventions.VICTIM] == str(look.controller)
    assert root["told"][conventions.VICTIM_KIND] == "controller"
    assert root["told"][conventions.CAUSE] == conventions.CAUSE_LIFELINE
    trace = [span for span in spans if span["traceId"] == root["traceId"]]
    for expected in (conventions.LOAD, conventions.VERIFY, conventions.INIT_DISPATCH, conventions.LEADER_AND_ISR):
        assert any(span["name"] == expected for span in trace), expected
    moments = [
        int(root["startTimeUnixNano"]),
        *(int(root["told"][stage.root_attribute]) for stage in conventions.SUCCESSION_STAGES if stage.root_attribute),
    ]
    assert moments == sorted(moments)


def _moved(span: Span, by_ns: int) -> Span:
    """As its process would have written it by a clock that is behind by so much."""
    told = {
        name: str(int(text) - by_ns) if name.endswith("unix_nano") and text != "0" else text
        for name, text in span.attributes.items()
    }
    return span._replace(start_ns=span.start_ns - by_ns, end_ns=span.end_ns - by_ns, attributes=told)


@pytest.mark.full
@pytest.mark.parametrize("ahead_ms", [20, 100, -500])
async def test_a_live_client_whose_clock_is_wrong_costs_no_step_more_than_its_bound(
    cluster: LocalCluster, ahead_ms: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    ahead_ns = ahead_ms * 1_000_000
    folder, client = cluster.data_dir / TRACES, f"skewed {ahead_ms}"
    before = tracing.tracer()
    telemetry = setup.start("skewed", str(ahead_ms), traces_dir=folder)
    request.addfinalizer(lambda: tracing.tell_time_by(time.time_ns))
    tracing.tell_time_by(lambda: time.time_ns() + ahead_ns)

    def found() -> Change | None:
        changes = analyse(folder).changes
        return next((one for one in changes if one.chains and one.chains[0].client == client and one.complete), None)

    try:
        async with under_load(cluster, f"skewed{ahead_ms}") as running:
            await running.stage.kill_leader(TopicPartition(f"skewed{ahead_ms}", 0))

            async def written() -> bool:
                return found() is not None

            await until(written)
            for name in tuple(running.stage.killed):
                await running.stage.restart(name)
            await running.stage.all_in_sync()
    finally:
        telemetry.close()
        tracing.use(before)
    change = found()
    assert change is not None
    (note,) = [one for one in change.clocks if one.process == client]
    assert note.bound_ms is not None
    assert abs(note.ahead_ms - ahead_ms) <= note.bound_ms
    # What the same spans say where the client's clock is right.
    intake = read_folder(folder, SELECTION, trace_of=trace_of)
    (spans,) = [of for of in intake.traces() if of[0].trace_id == change.trace_id]
    right = change_of([_moved(span, ahead_ns) if span.process == client else span for span in spans])
    assert right is not None
    true = {(chain.name, segment.until): segment.ms for chain in right.chains for segment in chain.segments}
    for chain in change.chains:
        for segment in chain.segments:
            assert segment.bound_ms is not None
            assert abs(segment.ms - true[chain.name, segment.until]) <= segment.bound_ms + 0.001, (chain, segment)
    # Whichever file is lost, the change is there.
    for lost in folder.glob("*.jsonl"):
        left = tmp_path / lost.stem
        left.mkdir()
        for file in folder.glob("*.jsonl"):
            if file != lost:
                shutil.copy(file, left)
        assert change.trace_id in {one.trace_id for one in analyse(left).changes}, lost.name
