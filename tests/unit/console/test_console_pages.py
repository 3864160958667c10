"""What the pages say of a cluster, how large they are, and what they say when it refuses."""

import asyncio
import re
import shlex
import time
from contextlib import nullcontext
from html import unescape
from pathlib import Path
from urllib.parse import quote

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client.admin.describing.events import EventKind
from regnum_client.admin.describing.offset_admin import PartitionOffsets
from regnum_client.admin.describing.quota_usage import ClientUsage
from regnum_client.admin.groups.views import CommittedOffset
from regnum_client.admin.health.views import HealthView, TroubleCount, TroubledPartition
from regnum_client.admin.reassignment.values import OngoingReassignment
from regnum_client.records import TopicPartition
from regnum_console.app import application
from regnum_console.context import Context
from regnum_console.html import el
from regnum_console.live.feed import ChangeFeed
from regnum_console.pages.cluster import stop_of
from regnum_console.port import Ports
from regnum_model.ids import BrokerId
from regnum_model.topic_filter import Trouble
from regnum_service.errors import RegnumError
from regnum_testing.asgi import EventStream, ask
from regnum_testing.fake_console import (
    HOSTS,
    WHEN_MS,
    FakeConsole,
    FakeConsoleCluster,
    FakeReader,
    event_of,
    health_of,
    topic_of,
)
from regnum_testing.pictures.pages import busy_console
from regnum_testing.waiting import within

MEGABYTE = 1_000_000


async def shown(console: FakeConsole, path: str, *, status: int = 200) -> str:
    answer = await ask(console.app, path)
    assert answer.status == status, answer.text
    return answer.text


def words(html: str) -> str:
    """What a person reads."""
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


async def test_the_first_page_says_what_is_wrong_why_and_what_helps() -> None:
    console = FakeConsole()
    assert "All is well." in words(await shown(console, "/"))
    console.cluster.health = health_of(
        troubles={Trouble.OFFLINE: TroubleCount(partitions=1, for_long=1)},
        troubled_partitions=(
            TroubledPartition(
                topic="orders",
                partition=1,
                troubles=(Trouble.OFFLINE,),
                age_s=61.0,
                leader=-1,
                isr=(),
                replicas=(1, 2),
                reason="brokers 1 and 2 are away; start one of them",
            ),
        ),
    )
    page = await shown(console, "/")
    assert "1 partitions are" in words(page)
    assert "start one of them" in page
    assert 'href="/topics/orders/1"' in page


@pytest.mark.parametrize(
    ("clicks", "answer"),
    [
        ([], "brokers 1, 2 and 3 lost what they had"),
        (["/groups"], "Lag report-088 Stable 1 2 orders/1 177"),
        (["/topics", "/topics/orders", "/topics/orders/0"], "orders/0 is led by broker 1"),
        (["/quotas"], "user User:service-0, client shop-0 producer_byte_rate 1 2 MB/s 1.5 MB/s 1.2 s"),
        (["/brokers/2"], "No: wait until replicas are in sync again"),
        (["/topics", "by=size"], "Size orders"),
        (["/changes"], "clients waited 103.0 ms on orders/0"),
        (["/moves"], "500 MB of 2 GB 25 %"),
        (["/topics?trouble=under-replicated"], "orders"),
        (["/topics", "/topics/orders", "/records/orders"], "offsets 0 to 60"),
    ],
)
async def test_a_task_of_an_operator_takes_three_clicks_at_most(tmp_path: Path, clicks: list[str], answer: str) -> None:
    console = busy_console(tmp_path, HOSTS, topics=3)
    console.cluster.sizes[TopicPartition("orders", 0)] = 9_000_000_000
    # (An order is chosen, and shown.)
    assert len(clicks) + ("by=size" in clicks) <= 3
    page = await shown(console, "/")
    for address in clicks:
        if address == "by=size":
            assert 'name="by"' in page
            assert '<option value="size">' in page
        else:
            assert f'href="{address}"' in page
        page = await shown(console, "/topics?by=size" if address == "by=size" else address)
    assert answer in words(page)


async def test_a_page_shows_the_rest_when_no_controller_answers() -> None:
    console = FakeConsole()
    console.cluster.controller = False
    page = words(await shown(console, "/"))
    assert "What is wrong is not known: no election process is controller" in page
    assert "Brokers" in page


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (errors_pb2.ERROR_CODE_CLUSTER_AUTHORIZATION_FAILED, 403),
        (errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED, 403),
        (errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, 503),
    ],
)
@pytest.mark.parametrize(
    "path", ["/topics", "/topics/orders", "/groups", "/groups/billing", "/records/orders", "/events"]
)
async def test_a_caller_without_rights_sees_why_and_nothing_else(
    path: str, code: errors_pb2.ErrorCode.ValueType, status: int
) -> None:
    console = FakeConsole()
    console.cluster.groups = {"billing": {}}
    console.log.add(b"secret")
    console.cluster.refusal = RegnumError(code, "it is refused <here>")
    page = await shown(console, path, status=status)
    assert "it is refused &lt;here&gt;" in page
    assert "secret" not in page


async def test_first_page_of_five_thousand_topics_is_small_and_leads_to_the_rest() -> None:
    console = FakeConsole()
    console.cluster.topics = {f"topic-{n:04}": topic_of(f"topic-{n:04}", [[1, 2, 3]]) for n in range(5_000)}
    began_s = time.process_time()
    page = await shown(console, "/topics")
    assert time.process_time() - began_s < 1.0
    assert len(page) < MEGABYTE
    seen = re.findall(r">(topic-\d+)<", page)
    while following := re.search(r'href="(/topics\?first=[^"]+)">Next page', page):
        page = await shown(console, following[1])
        seen += re.findall(r">(topic-\d+)<", page)
        if len(seen) >= 500:
            break
    assert seen == sorted(console.cluster.topics)[: len(seen)]


async def test_topics_are_found_by_a_part_of_their_name_and_the_largest_by_size() -> None:
    console = FakeConsole()
    console.cluster.topics = {name: topic_of(name, [[1, 2, 3]]) for name in ("orders", "clicks", "__own")}
    console.cluster.sizes = {TopicPartition("clicks", 0): 7_000_000}
    assert "__own" not in await shown(console, "/topics")
    assert "clicks" not in await shown(console, "/topics?match=rder")
    page = await shown(console, "/topics?by=size")
    assert page.index("clicks") < page.index("orders")
    assert "7 MB" in page
    await shown(console, "/topics?match=%2F", status=400)


async def test_a_topic_of_thousands_of_partitions_is_shown_in_pages() -> None:
    console = FakeConsole()
    console.cluster.topics["wide"] = topic_of("wide", [[1, 2, 3]] * 3_000)
    page = await shown(console, "/topics/wide")
    assert len(page) < MEGABYTE / 4
    assert "first=100" in page
    assert 'href="/topics/wide/100"' in await shown(console, "/topics/wide?first=100")


async def test_a_partition_says_why_its_leader_is_where_it_is() -> None:
    console = FakeConsole()
    console.cluster.events = [event_of(5, EventKind.LEADER_ELECTED)]
    page = words(await shown(console, "/topics/orders/0"))
    assert "a broker died" in page
    assert "port refused twice" in page
    assert "There are no traces here" in page
    await shown(console, "/topics/orders/9", status=404)
    await shown(console, "/topics/none", status=404)


async def test_a_hundred_groups_come_with_those_that_lag_most_first() -> None:
    console = FakeConsole()
    partitions = [TopicPartition("orders", n) for n in range(10)]
    for n in range(100):
        offsets = {one: CommittedOffset(100 - n % 7 - (90 if n == 42 else 0), 1, "", WHEN_MS) for one in partitions}
        console.cluster.groups[f"group-{n:03}"] = offsets
    console.cluster.ends = {one: PartitionOffsets(0, 100) for one in partitions}
    began_s = time.process_time()
    page = await shown(console, "/groups")
    assert time.process_time() - began_s < 1.0
    assert len(page) < MEGABYTE
    assert re.findall(r">(group-\d+)<", page)[0] == "group-042"
    assert re.findall(r">(group-\d+)<", await shown(console, "/groups?sort=name"))[0] == "group-000"


async def test_the_command_of_a_reset_is_safe_to_take_over_into_a_shell() -> None:
    console = FakeConsole()
    name = "x; touch /tmp/mine"
    console.cluster.groups[name] = {TopicPartition("orders", 0): CommittedOffset(1, 4, "", WHEN_MS)}
    text = unescape((await ask(console.app, f"/groups/{quote(name)}?to=earliest")).text)
    command = re.search(r"<pre>(regnum groups [^<]*)</pre>", text)
    assert command is not None
    assert shlex.split(command[1])[-2:] == ["--", name]


@pytest.mark.parametrize(
    "address",
    [
        "/brokers/{}", "/topics/orders/{}", "/topics/orders?first={}", "/groups?from={}", "/events?broker={}",
        "/records/orders?partition={}", "/records/orders?from={}", "/records/orders?from=-{}h",
    ],
)  # fmt: skip
async def test_a_number_of_any_length_is_refused(address: str) -> None:
    console = FakeConsole()
    answer = await ask(console.app, address.format("9" * 5_000))
    assert answer.status == 400


async def test_a_browser_that_hangs_up_ends_the_work_for_its_page() -> None:
    console = FakeConsole()
    began, ended = asyncio.Event(), asyncio.Event()

    async def never(*_: object, **__: object) -> HealthView:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        raise AssertionError

    class Slow(FakeConsoleCluster):
        describe_health = never

    ports = Ports(cluster=Slow(), connect=lambda: nullcontext(Slow()), read=lambda: FakeReader(console.log), write=None)
    feed = ChangeFeed(None, console.clock)
    context = Context(ports=ports, clock=console.clock, feed=feed, streams=console.streams, token="")
    async with EventStream(application(context), "/"):
        await within(began.wait())
    assert ended.is_set()


async def test_a_group_shows_what_a_reset_would_do_and_does_not_do_it() -> None:
    console = FakeConsole()
    console.cluster.groups = {"billing/eu": {TopicPartition("orders", 0): CommittedOffset(70, 1, "", WHEN_MS)}}
    console.cluster.ends = {TopicPartition("orders", 0): PartitionOffsets(10, 100)}
    page = words(await shown(console, "/groups/billing%2Feu?to=earliest"))
    assert "lag 30 records" in page
    assert "orders/0 70 10 -60" in page
    assert "orders/0 70 40 -30" in words(await shown(console, "/groups/billing%2Feu?to=time&at=-1h"))
    await shown(console, "/groups/billing%2Feu?to=time&at=yesterday", status=400)


def test_a_broker_may_be_stopped_when_every_partition_keeps_a_leader_and_its_writes() -> None:
    topics = [
        topic_of("well", [[1, 2, 3]]),
        topic_of("thin", [[1, 2], [2, 3]]),
        topic_of("alone", [[1]], min_insync=1),
        topic_of("ill", [[1]], min_insync=2),
    ]
    stop = stop_of(1, topics)
    assert (stop.leads, stop.follows) == (4, 1)
    assert stop.without_leader == (("alone", 0), ("ill", 0))
    assert stop.without_writes == (("thin", 0),)
    assert stop_of(3, topics[:1]).without_writes == ()


async def test_the_page_of_a_broker_says_whether_it_may_be_stopped() -> None:
    console = FakeConsole()
    assert "No: wait" in words(await shown(console, "/brokers/2"))
    console.cluster.topics = {"orders": topic_of("orders", [[1, 2, 3]])}
    assert "Not known: 1 of 2 partitions" in words(await shown(console, "/brokers/2"))
    console.cluster.health = health_of(partitions=1)
    assert "Yes: every partition keeps a leader" in words(await shown(console, "/brokers/2"))
    console.cluster.controller = False
    assert "Not known: 1 partitions may be seen" in words(await shown(console, "/brokers/2"))
    console.cluster.controller = True
    await shown(console, "/brokers/9", status=404)


async def test_who_waits_for_a_quota_stands_on_top() -> None:
    console = FakeConsole()
    console.cluster.clients = tuple(
        ClientUsage(
            broker=1,
            quota="producer_byte_rate",
            user=None,
            client_id=name,
            rate=9.0,
            limit=8.0,
            wait_s=wait,
            idle_s=0.1,
        )
        for name, wait in (("calm", 0.0), ("importer", 2.5))
    )
    page = words(await shown(console, "/quotas"))
    assert page.index("client importer") < page.index("client calm")
    assert "2.5 s" in page


async def test_moves_show_how_far_they_are_and_what_they_wait_for() -> None:
    console = FakeConsole()
    assert "No partition is on its way" in await shown(console, "/moves")
    console.cluster.moves = (
        OngoingReassignment(
            topic="orders",
            partition=0,
            replicas=(1, 2, 3, 4),
            origin=(1, 2, 3),
            target=(2, 3, 4),
            phase="moving",
            waits_for="broker 4 is not in sync yet",
            since_ms=WHEN_MS,
            leader=1,
            isr=(1, 2, 3),
            bytes_total=2_000_000,
            bytes_done=500_000,
            added=(),
        ),
    )
    page = words(await shown(console, "/moves"))
    assert "broker 4 is not in sync yet" in page
    assert "500 kB of 2 MB" in page


async def test_events_are_shown_in_pages_and_lead_to_what_they_are_about() -> None:
    console = FakeConsole()
    console.cluster.events = [event_of(n, EventKind.LEADER_ELECTED) for n in range(1, 251)]
    page = await shown(console, "/events?topic=orders")
    assert f'href="/changes/{"ab" * 16}"' in page
    assert 'href="/topics/orders/0"' in page
    assert page.count("<tr>") == 101
    older = re.search(r'href="(/events\?topic=orders&amp;before=7.151)"', page)
    assert older is not None
    assert "07:06" not in await shown(console, older[1].replace("&amp;", "&"))
    await shown(console, "/events?kind=none-such", status=400)
    await shown(console, "/events?before=x", status=400)


async def test_changes_come_from_events_where_there_are_no_traces_and_say_so() -> None:
    console = FakeConsole()
    console.cluster.events = [
        event_of(1, EventKind.BROKER_FENCED, topic="", partition=None, broker=BrokerId(3)),
        event_of(4, EventKind.LEADER_ELECTED),
        event_of(9, EventKind.LEADER_ELECTED, partition=1),
        event_of(10, EventKind.CONFIG_CHANGED, trace_id="cd" * 16),
    ]
    page = await shown(console, "/changes")
    assert "drawn from the controller&#x27;s events" in page
    assert "<svg" in page
    assert "lifeline-broken 2 8" in words(page)
    assert "broker-fenced" in await shown(console, f"/changes/{'ab' * 16}")
    await shown(console, f"/changes/{'cd' * 16}", status=404)


def test_what_comes_from_the_cluster_is_escaped_and_can_be_encoded() -> None:
    made = el("a", "<script>", ["\ud800", None, 3], href='"&<', checked=True, hidden=False, data_x=None)
    assert made == '<a href="&quot;&amp;&lt;" checked>&lt;script&gt;\\ud8003</a>'
    assert made.encode()
