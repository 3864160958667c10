"""An attack is made, and watched: memory of every process, what leaves an ISR, and what the bystander waits for."""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.parser import text_string_to_metric_families
from regnum_local.plan import METRICS, PORT_NAMES, Role
from regnum_model.nodes import Address
from regnum_service.clock import SystemClock

from regnum_testing.attacks.attack import Attack
from regnum_testing.attacks.bystander import KINDS, Bystander, bystander
from regnum_testing.attacks.figures import Figures, Waits
from regnum_testing.attacks.target import BYSTANDER_TOPIC, PARTITIONS, PRODUCER, Target
from regnum_testing.direct_http import opened_directly
from regnum_testing.process_memory import PeakMemory
from regnum_testing.under_load import until

CLOCK: Final = SystemClock()
QUIET_S: Final = 5.0
"""Before each attack."""
SHRINKS: Final = "regnum_broker_isr_shrinks_total"
THROTTLED: Final = "regnum_broker_quota_throttled_total"
HELD_PEAK: Final = "regnum_broker_client_held_peak_bytes"
HELD_MAX: Final = "regnum_broker_client_held_max_bytes"


@dataclass(frozen=True, slots=True)
class Watch:
    """One cluster and its bystander."""

    target: Target
    """What is attacked."""
    bystander: Bystander
    """What runs beside."""
    attackers: Iterator[int] = field(default_factory=itertools.count)
    """Numbers of those that have made no attack."""

    async def put_to(self, attack: Attack) -> Figures:
        """Make an attack after a quiet time, and wait until all that began meanwhile has come.

        Its client is one that has done nothing before: it owes nothing to a quota.
        """
        target = self.target.attacked_by(next(self.attackers))
        quiet_s = CLOCK.monotonic()
        await CLOCK.sleep(QUIET_S)
        await self.bystander.all_from(CLOCK.monotonic())
        before, pids = await self._brokers(), self.target.pids()
        errors, told = self.bystander.count("error"), self.bystander.count("told")
        async with contextlib.AsyncExitStack() as looks:
            memory = {
                name: await looks.enter_async_context(PeakMemory(pid)) for name, pid in pids.items() if pid is not None
            }
            begun_s = CLOCK.monotonic()
            heard = await attack.run(target)
            ended_s, now = CLOCK.monotonic(), self.target.pids()
            if now == pids:
                await self.bystander.all_from(ended_s)
        after, now = await self._brokers(), self.target.pids()
        roles = self.target.roles()
        return Figures(
            attack=attack.name,
            client=attack.client,
            has_quotas=self.target.has_quotas,
            is_charged=attack.is_charged,
            heard=dict(heard),
            quiet={kind: Waits.of(self.bystander.waits_s(kind, quiet_s, begun_s)) for kind in KINDS},
            attacked={kind: Waits.of(self.bystander.waits_s(kind, begun_s, ended_s)) for kind in KINDS},
            errors=self.bystander.count("error") - errors,
            told=self.bystander.count("told") - told,
            throttled=after[THROTTLED] - before[THROTTLED],
            isr_shrinks=after[SHRINKS] - before[SHRINKS],
            ended=[name for name, pid in pids.items() if now[name] != pid],
            held_max=before[HELD_MAX] // self._count(Role.BROKER),
            held_peak=after[HELD_PEAK],
            brokers=max(one.bytes for name, one in memory.items() if roles[name] is Role.BROKER),
            others=max(one.bytes for name, one in memory.items() if roles[name] is not Role.BROKER),
        )

    def _count(self, role: Role) -> int:
        return sum(one is role for one in self.target.roles().values())

    async def _brokers(self) -> Counter[str]:
        """What all brokers say of themselves: sums, and of the peak of held bytes the largest."""
        found: Counter[str] = Counter()
        for name, role in self.target.roles().items():
            if role is not Role.BROKER or self.target.pids()[name] is None:
                continue
            for family in text_string_to_metric_families(await _scraped(self.target.address(name, METRICS))):
                for sample in family.samples:
                    if sample.name == HELD_PEAK:
                        found[HELD_PEAK] = max(found[HELD_PEAK], int(sample.value))
                    elif sample.name in {SHRINKS, THROTTLED, HELD_MAX}:
                        found[sample.name] += int(sample.value)
        return found


async def _scraped(place: Address) -> str:
    """The text of an endpoint, once it answers: after an attack on it it may be full for some seconds."""

    def read() -> str:
        with opened_directly(f"http://{place}/metrics", timeout=20.0) as answer:
            text: str = answer.read().decode()
            return text

    text = ""

    async def answered() -> bool:
        nonlocal text
        with contextlib.suppress(OSError):
            text = await asyncio.to_thread(read)
        return bool(text)

    await until(answered)
    return text


@contextlib.asynccontextmanager
async def watched(target: Target) -> AsyncIterator[Watch]:
    """The bystander runs."""
    listeners = {name: target.address(name) for name, role in target.roles().items() if "client" in PORT_NAMES[role]}
    async with bystander(
        target.cluster.bootstrap, BYSTANDER_TOPIC, PARTITIONS, target.files(PRODUCER), listeners
    ) as beside:
        yield Watch(target, beside)
