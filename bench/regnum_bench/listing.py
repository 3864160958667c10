"""``listing``: ``regnum topics list`` as a user runs it, in a cluster with many topics, and the pages that it asks for.

The command is a fresh process each time, its output goes to a file. Pages are asked for by this process, one after
another, of one broker: of summaries, as the command asks for them, and of whole topics.
"""

import gc
from collections.abc import Sequence
from typing import Final

from regnum.metadata.v1 import metadata_pb2, metadata_pb2_grpc
from regnum_local.plan import Role
from regnum_service.channel import aio_channel

from regnum_bench.figures import Round, quantile
from regnum_bench.stand import Measured, Run, Stand, stand
from regnum_bench.timed_program import compiled_into, ran, regnum
from regnum_bench.waiting import MeasureError

LIST_S_MAX: Final = 1.0
"""How long the command may take, seconds."""
PROMISED_TOPICS: Final = 20_000
"""Topics up to which that is promised."""
OTHERS_MAX: Final = 0.1
"""Share of all processors' time that other programs may have where the limit is judged."""
MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024


async def listing(run: Run) -> Measured:
    """Figures of each repetition."""
    rounds: list[Round] = []
    async with stand(run) as cluster:
        filled_s = await cluster.fill()
        others_ratio = 0.0
        # Compiled once, as where it is installed.
        await _listed(cluster)
        for number in range(run.shape.warm_up + run.shape.repetitions):
            await cluster.settle()
            figures, others = await _listed(cluster)
            pages = await _pages(cluster, "page", summaries=True)
            whole = await _pages(cluster, "whole_page", summaries=False)
            if number >= run.shape.warm_up:
                rounds.append({**figures, **pages, **whole})
                others_ratio = max(others_ratio, others)
    complaints, void = judged([one["list_s"] for one in rounds], topics=run.shape.topics, others_ratio=others_ratio)
    return Measured(
        rounds=tuple(rounds),
        complaints=complaints,
        void=void,
        details={"filled_s": round(filled_s, 2), "others_ratio": round(others_ratio, 3)},
    )


def judged(lists_s: Sequence[float], *, topics: int, others_ratio: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is wrong with the times of the command, in seconds, and what makes them void. Pure."""
    median_s = quantile(lists_s, 0.5)
    if topics > PROMISED_TOPICS or median_s <= LIST_S_MAX:
        return (), ()
    said = f"{topics:,} topics were listed in {median_s:.2f} s, and {LIST_S_MAX:g} s is allowed"
    if others_ratio <= OTHERS_MAX:
        return (said,), ()
    return (), (f"{said}, but other programs had {others_ratio:.0%} of the processors",)


async def _listed(cluster: Stand) -> tuple[Round, float]:
    """The command, once; and the share of the processors that others had meanwhile."""
    run, shape = cluster.run, cluster.run.shape
    command = regnum("topics", "list", "--bootstrap", ",".join(cluster.cluster.bootstrap))
    before = cluster.processor_time()
    async with cluster.watched("list") as cpu:
        found = await ran(command, within_s=shape.deadline_s, environment=compiled_into(run.directory / "bytecode"))
    after = cluster.processor_time()
    lines = found.output.count("\n") - 1
    if lines != shape.topics:
        raise MeasureError(f"{shape.topics:,} topics are there, and {lines:,} were listed")
    run.progress.detail(f"{lines:,} topics listed in {found.wall_s:.3f} s, {found.cpu_s:.3f} s of a processor")
    whole_s = after.whole_since(before)
    # The command is one of ours, though it has ended before anybody could ask what it used.
    others = after.others_ratio(before) - (found.cpu_s / whole_s if whole_s > 0 else 0.0)
    figures = {
        "list_s": found.wall_s,
        "list_cpu_command_s": found.cpu_s,
        "list_memory_bytes": float(found.memory_bytes),
        **cpu,
    }
    return figures, max(0.0, others)


async def _pages(cluster: Stand, name: str, *, summaries: bool) -> Round:
    """All pages of one broker, one after another."""
    run = cluster.run
    member = cluster.cluster.plan.of(Role.BROKER)[0]
    taken_ms: list[float] = []
    size = 0
    options = [("grpc.max_receive_message_length", MESSAGE_BYTES_MAX)]
    async with aio_channel(str(member.address("client")), options=options) as channel:
        stub = metadata_pb2_grpc.MetadataServiceStub(channel)
        await stub.DescribeTopics(metadata_pb2.DescribeTopicsRequest(limit=1), timeout=run.shape.deadline_s)
        request = metadata_pb2.DescribeTopicsRequest(summaries=summaries)
        topics: set[str] = set()
        gc.collect()
        while True:
            began_s = run.clock.monotonic()
            page = await stub.DescribeTopics(request, timeout=run.shape.deadline_s)
            taken_ms.append(1000 * (run.clock.monotonic() - began_s))
            size += page.ByteSize()
            topics.update(one.name for one in page.summaries)
            topics.update(one.topic.name for one in page.topics)
            if not page.HasField("next_cursor"):
                break
            request.cursor.CopyFrom(page.next_cursor)
    if len(topics) != run.shape.topics:
        raise MeasureError(f"{run.shape.topics:,} topics are there, and pages have {len(topics):,}")
    return {
        f"{name}s_count": float(len(taken_ms)),
        f"{name}_p50_ms": quantile(taken_ms, 0.5),
        f"{name}_max_ms": max(taken_ms),
        f"{name}_mean_bytes": size / len(taken_ms),
    }
