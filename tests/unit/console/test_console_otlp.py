"""Spans that are sent to the console itself come to the same change as those of files."""

from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from regnum_console.live.feed import ChangeFeed, Sources
from regnum_console.live.otlp import LINKS_MAX, MESSAGE_BYTES_MAX, SPAN_BYTES_MAX, SpanReceiver, receiving
from regnum_insight.attribution.changes import SELECTION
from regnum_insight.engine import analyse
from regnum_insight.spans.otlp import ALL
from regnum_model.nodes import Address
from regnum_service.channel import open_channel
from regnum_service.errors import PortTakenError
from regnum_testing.asgi import ask
from regnum_testing.change_traces import FullChangeTrace
from regnum_testing.clock import FakeClock
from regnum_testing.fake_console import FakeConsole
from regnum_testing.otlp_lines import Spans, line
from regnum_testing.otlp_requests import requests_of, sent_as


async def test_a_change_that_is_sent_is_that_of_the_report(tmp_path: Path) -> None:
    FullChangeTrace().write(tmp_path)
    (of_report,) = analyse(tmp_path).changes
    receiver = SpanReceiver(SELECTION)
    async with (
        receiving("127.0.0.1:0", receiver) as port,
        open_channel(Address(host="127.0.0.1", port=port)) as channel,
    ):
        for request in requests_of(tmp_path):
            answer = await TraceServiceStub(channel).Export(request)  # type: ignore[no-untyped-call]
            assert answer.partial_success.rejected_spans == 0
    console = FakeConsole(source=Sources([receiver]))
    assert of_report.trace_id in (await ask(console.app, "/changes")).text
    assert "There are no traces here" not in (await ask(console.app, "/changes")).text
    feed = ChangeFeed(receiver, FakeClock())
    assert await feed.look() == (), "each span comes once"


async def test_chains_are_equal_to_those_of_files(tmp_path: Path) -> None:
    FullChangeTrace().write(tmp_path)
    receiver = SpanReceiver(SELECTION)
    for request in requests_of(tmp_path):
        await receiver.Export(request, None)
    (known,) = await ChangeFeed(receiver, FakeClock()).look()
    assert known.change == analyse(tmp_path).changes[0]


async def test_what_is_no_part_of_a_change_is_let_go_and_what_waits_is_bounded() -> None:
    made = Spans(1)
    for name in ("regnum.produce", "other", "regnum.fetch"):
        made.add(name, 0, 1)
    receiver = SpanReceiver(SELECTION)
    await receiver.Export(sent_as(line(made.made)), None)
    assert receiver.look() == []
    few = SpanReceiver(ALL, pending_max=2)
    answer = await few.Export(sent_as(line(made.made)), None)
    assert (answer.partial_success.rejected_spans, bool(answer.partial_success.error_message)) == (1, True)
    assert [span.name for span in few.look()] == ["other", "regnum.fetch"]


async def test_a_span_that_is_too_large_is_let_go_and_its_sender_hears_it() -> None:
    made = Spans(1)
    for name in ("a", "b" * (SPAN_BYTES_MAX + 1)):
        made.add(name, 0, 1)
    receiver = SpanReceiver(ALL)
    told = (await receiver.Export(sent_as(line(made.made)), None)).partial_success
    assert (told.rejected_spans, "1 spans have more than" in told.error_message) == (1, True)
    assert [span.name for span in receiver.look()] == ["a"]


async def test_of_the_links_of_a_span_only_so_many_wait_and_the_span_stays() -> None:
    made = Spans(1)
    made.add("a", 0, 1)
    made.made[0]["links"] = [{"traceId": f"{number:032x}", "spanId": "1" * 16} for number in range(1, 101)]
    receiver = SpanReceiver(ALL)
    assert (await receiver.Export(sent_as(line(made.made)), None)).partial_success.rejected_spans == 0
    (span,) = receiver.look()
    assert [int(trace, 16) for trace, _ in span.links] == [*range(1, LINKS_MAX + 1)]


@pytest.mark.parametrize("changed", [{"traceId": ""}, {"spanId": "ab"}, {"name": ""}, {"endTimeUnixNano": "1"}])
async def test_an_odd_span_costs_itself(changed: dict[str, str]) -> None:
    made = Spans(1)
    for name in ("a", "b", "c"):
        made.add(name, 0, 1)
    made.made[1].update(changed)
    receiver = SpanReceiver(ALL)
    await receiver.Export(sent_as(line(made.made)), None)
    assert [span.name for span in receiver.look()] == ["a", "c"]


async def test_a_message_that_is_too_large_and_a_port_that_is_taken_are_refused() -> None:
    receiver = SpanReceiver(ALL)
    async with receiving("127.0.0.1:0", receiver) as port:
        async with open_channel(Address(host="127.0.0.1", port=port)) as channel:
            export: Any = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await export(bytes(MESSAGE_BYTES_MAX + 1))
            assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(PortTakenError, match="--otlp"):
            async with receiving(f"127.0.0.1:{port}", receiver):
                pass
