"""What the site shows works: the tutorial command by command, the cookbook, and the client loop under a kill."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from regnum_client import PartitionOffsets, RegnumError, TopicPartition, sync
from regnum_local.cluster import LocalCluster
from regnum_local.plan import Role
from regnum_testing.page_commands import commands, missing, python

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(600)]

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = {
    "node": ("node/node_modules", "node {examples}/node/client.js", "npm install"),
    "go": ("go/client", "cd {examples}/go && ./client", "go build -o client ."),
    "java": (
        "java/target/dependency",
        "java -cp '{examples}/java/target/classes:{examples}/java/target/dependency/*' Client",
        "mvn package",
    ),
}
"""What each needs that is no part of the set-up, how it is started, how that is made."""
TUTORIAL_S_MAX: Final = 600.0
"""What its first sentence promises."""
FIRST_RECORD_S_MAX: Final = 60.0
"""From `regnum up` until records were acknowledged, of which the README says a minute (installation apart)."""
DEADLINE_S: Final = 120.0
"""Of everything that is waited for."""


class Terminal:
    """Commands one after another in one shell's folder; ``&`` and ``wait`` go over several of them."""

    def __init__(self, folder: Path) -> None:
        self._folder: Final = folder
        self._environment: Final = {
            **{name: value for name, value in os.environ.items() if not name.startswith("REGNUM_")},
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "XDG_CONFIG_HOME": str(folder / "config"),
            "COLUMNS": "200",
        }
        self._behind: list[subprocess.Popen[str]] = []
        self.begun_s: Final = time.monotonic()
        """When the terminal was opened."""

    def run(self, command: str) -> str:
        """Run it; one with ``&`` goes on behind, ``wait`` waits for all of these. Both streams of what it printed."""
        if command == "wait":
            for process in self._behind:
                process.communicate(timeout=DEADLINE_S)
            return ""
        if command.endswith("&"):
            self._behind.append(self.start(command.removesuffix("&")))
            return ""
        ran = subprocess.run(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE_S,
            check=False,
        )
        assert ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}"
        return ran.stdout + ran.stderr

    def start(self, command: str) -> "subprocess.Popen[str]":
        """As ``&`` does."""
        return subprocess.Popen(["bash", "-c", command], cwd=self._folder, env=self._environment, text=True)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """With a cluster in ``tutorial``, as the page says."""
    here = Terminal(tmp_path)
    said = tmp_path / "up.txt"
    said.touch()
    running = here.start(f"exec regnum up --data-dir tutorial > {said} 2>&1")
    try:
        deadline = time.monotonic() + DEADLINE_S
        while "The cluster is up" not in said.read_text():
            assert time.monotonic() < deadline
            assert running.poll() is None, said.read_text()
            time.sleep(0.1)
        yield here
    finally:
        running.terminate()
        running.wait(DEADLINE_S)


@pytest.mark.parametrize("page", ["docs/start/tutorial.md", "README.md"])
def test_pages_command_by_command(page: str, terminal: Terminal, tmp_path: Path) -> None:
    begun = time.monotonic()
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = [one for one in commands(text) if not one.command.startswith(("make ", "grpcurl "))]
    assert len(shown) > 5
    leader = ""
    for one in shown:
        if one.command.startswith("regnum up"):
            assert missing(one, (tmp_path / "up.txt").read_text()) == []
            continue
        # The page says: take the number of your table.
        printed = terminal.run(one.command.replace("broker-2", leader or "broker-2"))
        if one.command.startswith("regnum topics describe orders"):
            leader = f"broker-{printed.splitlines()[1].split()[2]}"
        assert missing(one, printed) == [], f"{one.command}: {printed}"
        if one.command.endswith("| regnum produce orders"):
            assert time.monotonic() - terminal.begun_s < FIRST_RECORD_S_MAX, "to the first record"
        if one.command.startswith("tail"):
            assert printed.split()[-1] == "0", f"failed records: {printed}"
    assert time.monotonic() - begun < TUTORIAL_S_MAX


def _until(stopping: threading.Event, enough: Callable[[], bool], work: Callable[[], None]) -> None:
    """Run a recipe in a thread of its own until there is enough."""
    thread = threading.Thread(target=work)
    thread.start()
    deadline = time.monotonic() + DEADLINE_S
    while not enough():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    stopping.set()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


@pytest.fixture
def bootstrap(terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of the terminal's cluster, which programs of this process go to as well."""
    found = ",".join(json.loads((tmp_path / "tutorial/profile.json").read_text(encoding="utf-8"))["bootstrap"])
    monkeypatch.setenv("REGNUM_BOOTSTRAP", found)
    return found


async def test_the_recipes_of_the_cookbook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One broker is enough for them."""
    at_once = {Role.BROKER: ("--group-initial-rebalance-delay-ms", "0")}
    async with LocalCluster(tmp_path / "data", brokers=1, elections=1, metadata=1, extra=at_once) as cluster:
        monkeypatch.setenv("REGNUM_BOOTSTRAP", ",".join(cluster.bootstrap))
        assert await asyncio.to_thread(recipes, tmp_path) == 5


def recipes(folder: Path) -> int:
    """All of them, one after another; returns how many orders came to be in the database."""
    page: dict[str, Any] = {}
    exec(compile(python((ROOT / "docs/use/cookbook.md").read_text(encoding="utf-8")), "cookbook.md", "exec"), page)  # noqa: S102
    with sync.Admin() as admin:
        for topic in ("orders", "orders.dead"):
            admin.create_topic(topic, partitions=3)
    before_ms = int(time.time() * 1000)
    offsets = page["in_order"]("customer-7", [b"1", b"2", b"bad", b"4"])
    assert offsets == list(range(offsets[0], offsets[0] + 4))
    seen: list[bytes] = []

    def handle(record: Any) -> None:
        if record.value == b"bad":
            raise ValueError("not an order")
        seen.append(record.value)

    stopping = threading.Event()
    _until(stopping, lambda: b"4" in seen, lambda: page["consume_or_park"](stopping, handle, attempts=2))
    assert seen == [b"1", b"2", b"4"]
    with sync.Consumer() as consumer:
        consumer.assign("orders.dead", start="earliest")
        parked = next(consumer)
    assert (parked.value, dict(parked.headers)["error"]) == (b"bad", b"ValueError('not an order')")
    again: list[bytes] = []
    stopping = threading.Event()
    page["in_order"]("customer-7", [b"5"])
    _until(stopping, lambda: bool(again), lambda: page["consume"](stopping, lambda record: again.append(record.value)))
    assert again == [b"5"], "the group had committed what it was done with"
    replayed = page["since"](before_ms)
    assert [record.value for record in replayed] == [b"1", b"2", b"bad", b"4", b"5"]
    database = page["sqlite3"].connect(folder / "effects")
    database.execute("CREATE TABLE done (topic, partition, offset, PRIMARY KEY (topic, partition, offset))")
    database.execute("CREATE TABLE orders (value)")
    for record in [*replayed, *replayed]:
        page["effect_once"](database, record)
    (orders,) = database.execute("SELECT count(*) FROM orders").fetchone()
    page["many"]([f"many-{number}" for number in range(20)])
    with pytest.raises(RegnumError), sync.Admin() as admin:
        admin.create_topic("orders")
    return int(orders)


@pytest.mark.parametrize("language", EXAMPLES)
def test_a_client_loop_while_its_leader_dies(language: str, terminal: Terminal, bootstrap: str, tmp_path: Path) -> None:
    needed, command, made = EXAMPLES[language]
    if not (ROOT / "examples" / needed).exists():
        pytest.skip(f"{made} in examples/{language} comes first")
    terminal.run("regnum topics create numbers --partitions 3 --replication-factor 3")
    start = command.format(examples=ROOT / "examples")
    running = terminal.start(f"{start} {bootstrap} numbers 2000 > {tmp_path}/out.txt")
    first = TopicPartition("numbers", 0)
    with sync.Admin() as admin:
        deadline = time.monotonic() + DEADLINE_S
        while not (isinstance(at := admin.list_offsets([first])[first], PartitionOffsets) and at.high_watermark):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    leader = terminal.run("regnum topics describe numbers").splitlines()[1].split()[2]
    terminal.run(f"regnum kill broker-{leader}")
    assert running.poll() is None, "it had done before the kill"
    assert running.wait(2 * DEADLINE_S) == 0
    assert terminal.run("cat out.txt") == "2000 acknowledged, 2000 read, 0 lost, 0 twice\n"
