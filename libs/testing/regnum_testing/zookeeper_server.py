"""Real ZooKeeper servers, one node or three, in processes of the test.

The jars are those inside pyspark. Nothing is written through to the disk (``forceSync=no``): a kill of a process loses
nothing by that, only a loss of power would.
"""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from regnum_testing.ports import unused_port

READY_WITHIN_S: Final = 60.0
"""Seconds a server may take to serve."""

MIN_SESSION_TIMEOUT_S: Final = 1.0
"""Shortest session time-out that these servers grant; the longest is a minute."""

_STANDALONE: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
_QUORUM: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

_JARS: Final = ("zookeeper-", "slf4j-api", "log4j-", "metrics-core", "netty-", "snappy-java", "commons-", "audience-")
"""What the names of the needed jars begin with; pyspark brings 300, and a JVM opens all that it is given."""

_JVM_OPTIONS: Final = (
    *("-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"),
    *("-Djava.net.preferIPv4Stack=true", "-Dlog4j2.level=WARN", "-Dzookeeper.admin.enableServer=false"),
    *("-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024", "-Dzookeeper.4lw.commands.whitelist=*"),
)


def class_path() -> str:
    """Jars of ZooKeeper and of what it needs."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise AssertionError("ZooKeeper comes out of pyspark, which is not installed; run: make")
    jars = sorted((Path(spec.origin).parent / "jars").glob("*.jar"))
    return os.pathsep.join(str(jar) for jar in jars if jar.name.startswith(_JARS))


def java() -> str:
    """The Java of this machine."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise AssertionError("ZooKeeper needs Java 17; install it or set JAVA_HOME")
    return found


class ZooKeeperServer:
    """One ZooKeeper on ports and a data directory that survive ``kill`` and ``start``."""

    def __init__(
        self,
        directory: Path,
        *,
        tick_ms: int = 500,
        settings: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = (),
        member: int | None = None,
        port: int | None = None,
    ) -> None:
        """``member`` is the number of an ensemble's node; ``settings`` and ``jvm_options`` are added to the usual."""
        self._directory = directory
        self._tick_ms = tick_ms
        self._settings = dict(settings or {})
        self._jvm_options = tuple(jvm_options)
        self._member = member
        self._process: subprocess.Popen[bytes] | None = None
        self.port: Final = unused_port() if port is None else port
        """Port for clients."""

    @property
    def endpoint(self) -> str:
        """Where clients connect to."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id; None when it is not running."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    def launch(self) -> None:
        """Start it and return at once."""
        data = self._directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        if self._member is not None:
            (data / "myid").write_text(f"{self._member}\n", encoding="ascii")
        settings = {
            "dataDir": str(data),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "tickTime": str(self._tick_ms),
            "minSessionTimeout": str(int(MIN_SESSION_TIMEOUT_S * 1000)),
            "maxSessionTimeout": "60000",
            "maxClientCnxns": "0",
        } | self._settings
        config = self._directory / "zoo.cfg"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        main = _STANDALONE if self._member is None else _QUORUM
        command = [java(), *_JVM_OPTIONS, *self._jvm_options, "-cp", class_path(), main, str(config)]
        with (self._directory / "zookeeper.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def wait_until_serving(self, *, within_s: float = READY_WITHIN_S) -> None:
        """Return when it serves clients, as one node or as a member of a majority."""
        give_up_s = time.monotonic() + within_s
        while self.mode() is None:
            if self._process is None or self._process.poll() is not None:
                text = (self._directory / "zookeeper.log").read_text(errors="replace")
                raise AssertionError(f"ZooKeeper did not start:\n{text[-2000:]}")
            if time.monotonic() > give_up_s:
                raise AssertionError(f"ZooKeeper does not serve on port {self.port}")
            time.sleep(0.05)

    def start(self) -> None:
        """Start it and return when it serves."""
        self.launch()
        self.wait_until_serving()

    def ask(self, word: str, *, timeout_s: float = 1.0) -> str:
        """Its answer to a four-letter word; empty when there is none."""
        answer = b""
        with (
            suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s) as connection,
        ):
            connection.sendall(word.encode("ascii"))
            while chunk := connection.recv(65536):
                answer += chunk
        return answer.decode("utf-8", errors="replace")

    def mode(self, *, timeout_s: float = 1.0) -> str | None:
        """``standalone``, ``leader`` or ``follower``; None while it does not serve."""
        for line in self.ask("srvr", timeout_s=timeout_s).splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return None

    def stop(self) -> None:
        """End it with SIGTERM, paused or not. Does nothing when it is not running."""
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGTERM)
            os.kill(self._process.pid, signal.SIGCONT)
            self._process.wait(timeout=30)
        self._process = None

    def kill(self) -> None:
        """End it as a loss of the process would: kill -9. Does nothing when it is not running."""
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=10)
        self._process = None

    def pause(self) -> None:
        """Stop it where it stands (SIGSTOP); its connections stay open and silent."""
        if (pid := self.pid) is not None:
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Undo ``pause``."""
        if (pid := self.pid) is not None:
            os.kill(pid, signal.SIGCONT)


class ZooKeeperEnsemble:
    """Three nodes that elect a leader among themselves."""

    def __init__(self, directory: Path, *, nodes: int = 3, tick_ms: int = 500) -> None:
        ports: set[int] = set()
        while len(ports) < 3 * nodes:
            ports.add(unused_port())
        numbers = range(1, nodes + 1)
        quorum = {f"server.{number}": f"127.0.0.1:{ports.pop()}:{ports.pop()}:participant" for number in numbers}
        limits = {"initLimit": "20", "syncLimit": "4", "standaloneEnabled": "false", "reconfigEnabled": "false"}
        self.servers: Final = tuple(
            ZooKeeperServer(
                directory / f"node{number}", tick_ms=tick_ms, settings=limits | quorum, member=number, port=ports.pop()
            )
            for number in numbers
        )
        """The nodes; each may be killed, started, paused and resumed by itself."""

    @property
    def endpoints(self) -> str:
        """All nodes, as they stand in a URL."""
        return ",".join(server.endpoint for server in self.servers)

    def start(self) -> None:
        """Start all nodes and return when each of them serves."""
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait_until_serving()

    def leader(self, *, within_s: float = READY_WITHIN_S) -> ZooKeeperServer:
        """The node that leads; waits for an election."""
        give_up_s = time.monotonic() + within_s
        while True:
            for server in self.servers:
                if server.pid is not None and server.mode(timeout_s=0.3) == "leader":
                    return server
            if time.monotonic() > give_up_s:
                raise AssertionError("no node of the ensemble leads")
            time.sleep(0.05)

    def followers(self) -> tuple[ZooKeeperServer, ...]:
        """The nodes that run and do not lead."""
        leader = self.leader()
        return tuple(server for server in self.servers if server is not leader and server.pid is not None)

    def kill(self) -> None:
        """End all nodes."""
        for server in self.servers:
            server.kill()
