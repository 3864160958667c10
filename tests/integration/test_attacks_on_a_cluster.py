"""Attacks of clients with few rights or none on a real cluster, once without quotas and once with one for each user.

While each goes on, another client's acknowledgements and records have a 99th percentile of at most 0.5 s (or five times
what it was just before, on a machine that is busy by itself), no replica leaves an ISR, no process ends, a broker has
at most four times the memory that it may hold for clients, and every other process 400 MiB. With quotas, which are
the same for all users, the attacker alone is asked to wait.

The figures are printed at the end; REGNUM_ATTACK_FIGURES names a file for them, in JSON.
"""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from regnum_testing.attacks import guests, writers
from regnum_testing.attacks.attack import Attack
from regnum_testing.attacks.figures import Figures, table, write_json
from regnum_testing.attacks.target import attacked_cluster
from regnum_testing.attacks.watch import Watch, watched

# In full: it measures times and memory of processes.
pytestmark = [
    pytest.mark.integration,
    pytest.mark.full,
    pytest.mark.timeout(240),
    pytest.mark.asyncio(loop_scope="module"),
]

FILE = "REGNUM_ATTACK_FIGURES"


@pytest.fixture(scope="module")
def figures(request: pytest.FixtureRequest) -> Iterator[list[Figures]]:
    """Of all attacks so far; shown at the end."""
    found: list[Figures] = []
    yield found
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(f"\n{table(found)}")  # noqa: T201 - for the one who runs it
    if file := os.environ.get(FILE):
        write_json(Path(file), found)


@pytest_asyncio.fixture(
    loop_scope="module", scope="module", params=[False, True], ids=["without quotas", "with quotas"]
)
async def watch(
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
    figures: list[Figures],
) -> AsyncIterator[Watch]:
    folder = tmp_path_factory.mktemp("attacked") / "data"
    async with attacked_cluster(folder, quotas=bool(request.param)) as target, watched(target) as found:
        yield found


@pytest.mark.parametrize("attack", [*guests.ATTACKS, *writers.ATTACKS], ids=lambda attack: attack.name)
async def test_others_are_served_and_memory_is_bounded(watch: Watch, attack: Attack, figures: list[Figures]) -> None:
    measured = await watch.put_to(attack)
    figures.append(measured)
    assert measured.findings() == []
