"""Attacks of a client with a certificate and no right: what is refused has to cost next to nothing."""

import asyncio
import contextlib
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Final

from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from regnum.admin.v1 import admin_pb2
from regnum.broker.v1 import log_pb2
from regnum.metadata.v1 import metadata_pb2, metadata_pb2_grpc
from regnum_local.plan import METRICS, TRACES
from regnum_model.nodes import Address
from regnum_telemetry.scraping import DEADLINE_S

from regnum_testing.attacks.attack import ATTACK_S, Attack
from regnum_testing.attacks.raw_calls import RawCall, send_many
from regnum_testing.attacks.target import GUEST, MIB, SECRET, Target
from regnum_testing.direct_http import opened_directly
from regnum_testing.under_load import until

PACKED_BYTES: Final = 33 * MIB
"""Of a packed message that is unpacked: 33 KB on the wire."""
SLOW_CONNECTIONS: Final = 5
"""For each method, with ten calls each whose messages never come: more than are read at once."""
CONNECTIONS, OF_EACH = 4, 25
"""Calls that are under way at once."""
NAMES: Final = 900_000
TRACE: Final = "ab" * 16
SERVED: Final = "regnum.metadata.v1.MetadataService/DescribeCluster"
"""Span of a call that a client without rights may make."""
SILENT: Final = 300
"""Connections to one endpoint that say nothing."""
CALL_S: Final = 60.0
"""Deadline of a call that is to be answered."""
LATE_S: Final = 5.0
"""How much later than its deadline a connection may be closed: threads of a busy machine have to wait."""

HEALTH: Final = "/grpc.health.v1.Health/Check"
REFLECTION: Final = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
_ZEROS: Final = "\0" * PACKED_BYTES


def _packed(path: str, message: bytes) -> RawCall:
    return RawCall(path=path, message=gzip.compress(message), encoding="gzip")


def _packed_calls(process: str) -> list[RawCall]:
    """To the services that every listener for clients has, and to one of the process's own."""
    calls = [
        _packed(HEALTH, health_pb2.HealthCheckRequest(service=_ZEROS).SerializeToString()),
        _packed(REFLECTION, reflection_pb2.ServerReflectionRequest(host=_ZEROS).SerializeToString()),
    ]
    match process.partition("-")[0]:
        case "metadata":
            asked = metadata_pb2.GetMetadataRequest(topics=[_ZEROS])
            calls.append(_packed("/regnum.metadata.v1.MetadataService/GetMetadata", asked.SerializeToString()))
        case "election":
            wanted = admin_pb2.CreateTopicsRequest(topics=[admin_pb2.NewTopic(name=_ZEROS)])
            calls.append(_packed("/regnum.admin.v1.AdminService/CreateTopics", wanted.SerializeToString()))
        case "broker":
            sent = log_pb2.ProduceRequest(partitions=[log_pb2.ProducePartition(topic=_ZEROS)])
            calls.append(_packed("/regnum.broker.v1.LogService/Produce", sent.SerializeToString()))
        case _:
            raise ValueError(f"{process} has no listener for clients")
    return calls


async def _packed_messages(target: Target, process: str) -> Counter[str]:
    address, tls = target.address(process), target.context(GUEST)
    calls = await asyncio.to_thread(_packed_calls, process)
    found: Counter[str] = Counter()
    for heard in await asyncio.gather(
        *(
            send_many(
                address, tls, call, connections=CONNECTIONS, of_each=OF_EACH, seconds=ATTACK_S, given_up_after_s=5.0
            )
            for call in calls
        )
    ):
        found += heard
    assert found["ended"] + found["reset"] > 0, "the listener answered none of them"
    return found


async def _packed_to_metadata(target: Target) -> Counter[str]:
    return await _packed_messages(target, "metadata-1")


async def _packed_to_election(target: Target) -> Counter[str]:
    return await _packed_messages(target, "election-1")


async def _packed_to_broker(target: Target) -> Counter[str]:
    return await _packed_messages(target, "broker-1")


async def _calls_without_messages(target: Target) -> Counter[str]:
    """Headers and three bytes, at every listener for clients, by more connections than messages are read at once."""
    metadata, log = "/regnum.metadata.v1.MetadataService", "/regnum.broker.v1.LogService"
    paths = {
        "metadata-1": (f"{metadata}/GetMetadata",),
        "election-1": ("/regnum.admin.v1.AdminService/DescribeAcls",),
        "broker-1": (f"{metadata}/GetMetadata", f"{log}/Produce", f"{log}/ProduceStream"),
    }
    found: Counter[str] = Counter()
    for heard in await asyncio.gather(
        *(
            send_many(
                target.address(process),
                target.context(GUEST),
                RawCall(path=path, message=b"nothing", sent_bytes=3),
                connections=SLOW_CONNECTIONS,
                of_each=10,
                seconds=ATTACK_S,
                again=True,
            )
            for process, some in paths.items()
            for path in some
        )
    ):
        found += heard
    return found


async def _many_names(target: Target) -> Counter[str]:
    """As plain bytes: what is packed is not taken at all."""
    asked = metadata_pb2.GetMetadataRequest(topics=[f"{number:06x}" for number in range(NAMES)])
    call = RawCall(path="/regnum.metadata.v1.MetadataService/GetMetadata", message=asked.SerializeToString())
    found: Counter[str] = Counter()
    for heard in await asyncio.gather(
        *(
            send_many(
                target.address(process),
                target.context(GUEST),
                call,
                connections=2,
                of_each=2,
                seconds=ATTACK_S,
                again=True,
            )
            for process in ("metadata-1", "broker-1")
        )
    ):
        found += heard
    return found


def _spans(folder: Path) -> Counter[str]:
    """Names of the spans of the trace that the attacker named, and how many there are of each."""
    lines = (
        line for file in folder.glob("*.jsonl") for line in file.read_bytes().splitlines() if TRACE.encode() in line
    )
    scopes = (scope for line in lines for one in json.loads(line)["resourceSpans"] for scope in one["scopeSpans"])
    return Counter(span["name"] for scope in scopes for span in scope["spans"] if span["traceId"] == TRACE)


async def _traced_calls(target: Target) -> Counter[str]:
    asked = log_pb2.ListOffsetsRequest(queries=[log_pb2.OffsetQuery(topic=SECRET, partition=0)])
    traced = f"00-{TRACE}-{'cd' * 8}-01"
    call = RawCall(
        path="/regnum.broker.v1.LogService/ListOffsets",
        message=asked.SerializeToString(),
        metadata=((b"traceparent", traced.encode()),),
    )
    found = await send_many(
        target.address("broker-1"), target.context(GUEST), call, connections=2, of_each=25, seconds=ATTACK_S, again=True
    )
    # One call that is served: it is written, and what was to be written before it as well.
    async with target.channel(GUEST, "broker-1") as channel:
        await metadata_pb2_grpc.MetadataServiceStub(channel).DescribeCluster(
            metadata_pb2.DescribeClusterRequest(), metadata=(("traceparent", traced),), timeout=CALL_S
        )
    spans: Counter[str] = Counter()

    async def served_one() -> bool:
        nonlocal spans
        spans = await asyncio.to_thread(_spans, target.cluster.data_dir / TRACES)
        return spans[SERVED] > 0

    await until(served_one)
    del spans[SERVED]
    assert found["ended"] > 100, "few calls were answered"
    assert not spans, f"refused calls left {dict(spans)}"
    return found


async def _silence(place: Address, ends_s: float, found: Counter[str]) -> None:
    """One connection after another that says nothing, each for as long as the endpoint bears it."""
    loop = asyncio.get_running_loop()
    while loop.time() < ends_s:
        reader, writer = await asyncio.open_connection(place.host, place.port)
        begun_s = loop.time()
        with contextlib.suppress(OSError):
            async with asyncio.timeout(DEADLINE_S + LATE_S):
                await reader.read()
        took_s = loop.time() - begun_s
        writer.close()
        found["closed at once" if took_s < 1.0 else "closed late"] += 1
        found["longest ms"] = max(found["longest ms"], int(took_s * 1_000))
        # A thousand a second from each would be a flood of connections, which is another attack.
        await asyncio.sleep(0.5)


async def _silent_connections(target: Target) -> Counter[str]:
    """To the endpoints that Prometheus reads; each is asked for its figures meanwhile."""
    places = [target.address(process, METRICS) for process in ("broker-1", "election-1", "metadata-1")]
    ends_s = asyncio.get_running_loop().time() + ATTACK_S
    found: Counter[str] = Counter()

    def read(place: Address) -> bool:
        try:
            with opened_directly(f"http://{place}/metrics", timeout=DEADLINE_S) as answer:
                return bool(answer.read())
        except OSError:
            return False

    async def scrape(place: Address) -> None:
        while asyncio.get_running_loop().time() < ends_s:
            found["scraped" if await asyncio.to_thread(read, place) else "not scraped"] += 1
            await asyncio.sleep(0.5)

    async with asyncio.TaskGroup() as group:
        for place in places:
            group.create_task(scrape(place))
            for _ in range(SILENT // len(places)):
                group.create_task(_silence(place, ends_s, found))
    assert found["longest ms"] < (DEADLINE_S + LATE_S) * 1_000, "a silent connection was not closed"
    return found


ATTACKS: Final = (
    Attack(name="packed messages to a metadata process", client=GUEST, run=_packed_to_metadata),
    Attack(name="packed messages to an election process", client=GUEST, run=_packed_to_election),
    Attack(name="packed messages to a broker", client=GUEST, run=_packed_to_broker),
    Attack(name="calls that never bring their messages", client=GUEST, run=_calls_without_messages),
    Attack(name="900,000 names in a GetMetadata", client=GUEST, run=_many_names),
    Attack(name="refused calls that say they are traced", client=GUEST, run=_traced_calls),
    Attack(name="silent connections to /metrics", client=GUEST, run=_silent_connections),
)
