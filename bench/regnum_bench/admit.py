"""``admit``: admissions a second of a real quota process over gRPC, and of its ledger and buckets by themselves.

Several admissions travel in one call (``batch``), several calls at once (``in_flight``). Every caller has a quota that
is never used up, so that each admission draws on a bucket.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import grpc
from regnum.quota.v1 import quota_pb2, quota_pb2_grpc
from regnum.types.v1 import errors_pb2
from regnum_coordination import open_store
from regnum_coordination.errors import NodeExists
from regnum_local.cluster import LocalCluster
from regnum_local.plan import Role
from regnum_model import bucket, quotas
from regnum_model.bucket import Limit
from regnum_model.nodes import Address
from regnum_model.quotas import QuotaEntity, QuotaNode
from regnum_quota.admission import Admission, Ledger, Mode
from regnum_service.channel import open_channel
from regnum_service.collector import short_collections
from regnum_service.errors import RegnumError
from regnum_service.status import from_rpc_error

from regnum_bench.figures import Round, quantile
from regnum_bench.launching import launched
from regnum_bench.stand import Measured, Run
from regnum_bench.waiting import MeasureError

CLIENTS: Final = 100
"""Callers, each with a bucket of its own."""
RATE: Final = 1e9
"""Permits a second of each: never used up."""
CALL_S: Final = 10.0
POLL_S: Final = 0.1


async def admit(run: Run) -> Measured:
    """Figures of each repetition."""
    shape = run.shape
    rounds: list[Round] = []
    async with _quota_process(run) as address:
        channel = open_channel(address)
        try:
            stub = quota_pb2_grpc.QuotaServiceStub(channel)
            await _active(run, stub)
            total = shape.warm_up + shape.repetitions
            for number in range(total):
                figures = await _over_grpc(run, stub)
                # Garbage collections as every service has them.
                with short_collections():
                    figures = {**figures, **_alone(shape.records)}
                if number >= shape.warm_up:
                    rounds.append(figures)
                run.progress.count(number + 1, total, "repetitions")
        finally:
            await channel.close()
    return Measured(rounds=tuple(rounds))


async def _over_grpc(run: Run, stub: "quota_pb2_grpc.QuotaServiceAsyncStub") -> Round:
    shape = run.shape
    run_id = uuid.uuid4().hex
    requests = [
        quota_pb2.AdmitRequest(
            admissions=[_asked(f"{run_id}-{number}", number) for number in range(start, start + shape.batch)]
        )
        for start in range(0, shape.records, shape.batch)
    ]
    calls_s: list[float] = []
    waiting = iter(requests)

    async def worker() -> None:
        for request in waiting:
            begun_s = time.perf_counter()
            answer = await stub.Admit(request, timeout=CALL_S)
            calls_s.append(time.perf_counter() - begun_s)
            if not all(all(verdict.admitted) for verdict in answer.verdicts):
                raise MeasureError("an admission was refused though its quota cannot be used up")

    begun_s = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(shape.in_flight)))
    taken_s = time.perf_counter() - begun_s
    return {
        "admissions_per_s": len(requests) * shape.batch / taken_s,
        "call_p50_ms": quantile(calls_s, 0.5) * 1000,
        "call_p99_ms": quantile(calls_s, 0.99) * 1000,
    }


def _alone(count: int) -> Round:
    """The ledger and a bucket in this process, without any wire: by seconds of processor time."""
    entities = {QuotaEntity(client_id=_client(number)): Limit(rate=RATE, burst=RATE) for number in range(CLIENTS)}
    ledger = Ledger(entities, active_since_s=-1.0)
    asked = [
        Admission(request_id=str(number), user="ann", client_id=_client(number), mode=Mode.STRICT, permits=(1,))
        for number in range(count)
    ]
    begun_s = time.process_time()
    for number, admission in enumerate(asked):
        ledger.judge(admission, number * 1e-6)
    judged_s = time.process_time() - begun_s
    limit = Limit(rate=RATE, burst=RATE)
    one = bucket.full(limit, 0.0)
    begun_s = time.process_time()
    for number in range(count):
        one = bucket.charge(one, limit, 1, number * 1e-6)
    charged_s = time.process_time() - begun_s
    return {"ledger_per_s": count / judged_s, "bucket_per_s": count / charged_s}


def _asked(id: str, number: int) -> quota_pb2.Admission:
    return quota_pb2.Admission(
        request_id=id,
        entity=quota_pb2.MutatingEntity(user="ann", client_id=_client(number)),
        mode=quota_pb2.ADMIT_MODE_STRICT,
        mutations=[quota_pb2.Mutation(name="topic", permits=1)],
    )


def _client(number: int) -> str:
    return f"client-{number % CLIENTS}"


async def _active(run: Run, stub: "quota_pb2_grpc.QuotaServiceAsyncStub") -> None:
    """Wait until the process decides."""
    said = "no call yet"

    async def decides() -> bool:
        nonlocal said
        try:
            await stub.Admit(quota_pb2.AdmitRequest(admissions=[_asked("", 0)]), timeout=CALL_S)
        except grpc.aio.AioRpcError as error:
            refused: RegnumError = from_rpc_error(error)
            said = f"{errors_pb2.ErrorCode.Name(refused.code)}: {refused}"
            return False
        return True

    await run.deadline("the quota process to become active").wait(decides, every_s=POLL_S, so_far=lambda: said)


@asynccontextmanager
async def _quota_process(run: Run) -> AsyncIterator[Address]:
    """A quota process, a store, and nothing else; every caller has its quota. Its internal address."""
    shape = run.shape
    run.progress.step(f"starting a quota process on {shape.coordination}")
    unstarted = LocalCluster(
        run.directory,
        brokers=0,
        elections=0,
        metadata=0,
        quotas=1,
        coordination=shape.coordination,
        report=run.progress.detail,
        extra=run.extra,
    )
    async with launched(unstarted, run.progress) as cluster:
        store = await open_store(cluster.coordination, session_timeout_s=30.0, operation_timeout_s=30.0)
        try:
            node = QuotaNode(config={quotas.RATE_KEY: str(RATE), quotas.BURST_KEY: str(RATE)}).encode()
            for number in range(CLIENTS):
                try:
                    await store.create(QuotaEntity(client_id=_client(number)).path, node, make_parents=True)
                except NodeExists as error:
                    raise MeasureError(f"a new store has quotas: {error}") from error
        finally:
            await store.close()
        # Started anew, it reads them: nobody announces changes to a quota process without a controller.
        await cluster.restart("quota-1")
        await cluster.wait_healthy("quota-1", shape.deadline_s)
        (member,) = cluster.plan.of(Role.QUOTA)
        yield member.address("internal")
