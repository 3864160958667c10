"""``storm``: many topics created, until every broker knows all leaders, and deleted, until their directories are gone.

Topics are created ``batch`` in a call. Without a rate the next call goes out when the last is answered; with one, so
many calls are offered in a second whatever becomes of them. One record goes into each partition before the deletion, so
that there are directories to remove.
"""

import asyncio
from pathlib import Path

from regnum_client import Admin, Producer, ProducerSettings
from regnum_local.plan import Role
from regnum_service.errors import RegnumError

from regnum_bench.figures import Round
from regnum_bench.quota_storm import quota_storm
from regnum_bench.shape import ShapeError
from regnum_bench.stand import Measured, Run, Stand, create_some, new_topics, stand
from regnum_bench.waiting import Deadline, MeasureError

DIRECTORY_POLL_S = 0.1
REPLICAS = "replicas"
"""Folder of all replicas in a broker's data folder."""
OPEN_RECORDS = 2_000
"""Records under way at once."""


async def storm(run: Run) -> Measured:
    """Figures of each repetition, in seconds."""
    if run.shape.quota:
        return await quota_storm(run)
    if run.shape.kill:
        raise ShapeError("--kill kills a broker while a storm is refused: give --quota too")
    rounds: list[Round] = []
    async with stand(run) as cluster:
        for number in range(run.shape.warm_up + run.shape.repetitions):
            await cluster.settle()
            async with cluster.watched("create") as create_cpu:
                created = await _create(cluster)
            made = await _write(cluster)
            async with cluster.watched("delete") as delete_cpu:
                deleted = await _delete(cluster)
            if number >= run.shape.warm_up:
                counts = {"directories_count": float(made)}
                rounds.append({**created, **deleted, **counts, **create_cpu, **delete_cpu})
    return Measured(rounds=tuple(rounds))


async def _create(cluster: Stand) -> Round:
    run, shape = cluster.run, cluster.run.shape
    offered = f"{shape.rate:g} calls offered in a second" if shape.rate else "the next call when the last is answered"
    run.progress.step(f"creating {shape.topics:,} topics, {shape.batch} in a call, {offered}")
    topics = new_topics(shape, cluster.brokers)
    deadline = run.deadline(f"{shape.partitions_total:,} partitions created and known everywhere")
    begun_s = run.clock.monotonic()
    if shape.rate:
        calls = [topics[start : start + shape.batch] for start in range(0, len(topics), shape.batch)]
        sent: list[asyncio.Task[None]] = []
        try:
            for number, call in enumerate(calls):
                await run.clock.sleep(begun_s + number / shape.rate - run.clock.monotonic())
                sending = create_some(cluster.admin, call, timeout_s=deadline.left_s + 1.0)
                sent.append(asyncio.create_task(sending, name=f"call {number} of the storm"))
            await asyncio.gather(*sent)
        finally:
            for task in sent:
                task.cancel()
    else:
        await cluster.create(topics, deadline)
    answered_s = run.clock.monotonic()
    known = await cluster.all_led(shape.names, deadline)
    figures = {
        "create_answers_s": answered_s - begun_s,
        "create_all_leaders_on_all_brokers_s": known.at_s - begun_s,
        "looked_s": known.looked_s,
    }
    run.progress.detail(f"known everywhere after {figures['create_all_leaders_on_all_brokers_s']:.2f} s")
    return figures


async def _write(cluster: Stand) -> int:
    """A record into each partition; the number of directories that there are then."""
    shape = cluster.run.shape
    settings = ProducerSettings(delivery_timeout_s=shape.deadline_s, topic_wait_s=shape.deadline_s)
    keys = [(name, number) for name in shape.names for number in range(shape.partitions)]
    async with Producer(cluster.cluster.bootstrap, settings=settings) as producer:
        for start in range(0, len(keys), OPEN_RECORDS):
            some = keys[start : start + OPEN_RECORDS]
            # All at once: topics that a producer does not know yet are then one question and not one each.
            sent = await asyncio.gather(*(producer.send(name, b"storm", partition=number) for name, number in some))
            await asyncio.gather(*sent)
            cluster.run.progress.count(start + len(some), len(keys), "partitions written to")
    return await _directories(cluster)


async def _delete(cluster: Stand) -> Round:
    run, names = cluster.run, cluster.run.shape.names
    run.progress.step(f"deleting {len(names):,} topics in one call")
    deadline = run.deadline(f"{len(names):,} topics deleted and their directories gone")
    begun_s = run.clock.monotonic()
    await _delete_all(cluster.admin, names, deadline)
    answered_s = run.clock.monotonic()
    left = await _directories(cluster)

    async def gone() -> bool:
        nonlocal left
        left = await _directories(cluster)
        return not left

    await deadline.wait(gone, every_s=DIRECTORY_POLL_S, so_far=lambda: f"{left:,} directories left")
    gone_s = run.clock.monotonic()
    unknown_s = await cluster.look.until_gone(cluster.brokers, names, deadline)
    run.progress.detail(f"directories gone after {gone_s - begun_s:.2f} s")
    return {
        "delete_answers_s": answered_s - begun_s,
        "delete_s": gone_s - begun_s,
        "delete_known_everywhere_s": unknown_s - begun_s,
    }


async def _delete_all(admin: Admin, names: tuple[str, ...], deadline: Deadline) -> None:
    for name, answer in (await admin.delete_topics(names, timeout_s=deadline.left_s + 1.0)).items():
        if isinstance(answer, RegnumError):
            raise MeasureError(f"topic {name} was not deleted: {answer}")


async def _directories(cluster: Stand) -> int:
    """Directories of replicas on all brokers, those set aside for removal among them."""
    members = cluster.cluster.plan.of(Role.BROKER)
    folders = [cluster.cluster.data_dir / member.name / REPLICAS for member in members]
    return await asyncio.to_thread(lambda: sum(map(_entries, folders)))


def _entries(folder: Path) -> int:
    return sum(1 for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else 0
