"""Three real etcd servers that form one store, in processes of the test.

    ensemble = EtcdEnsemble(directory)
    ensemble.start()                        # returns when all of them serve
    store = await open_store(ensemble.url("/prefix"))
    ensemble.kill(await asyncio.to_thread(ensemble.leader))

Members are numbers from 0. What waits, blocks: a test with a session on its loop calls it by ``asyncio.to_thread``.
"""

import http.client
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from regnum_testing.etcd_process import EtcdProcess
from regnum_testing.ports import unused_ports
from regnum_testing.waiting import DEADLINE_S

SIZE: Final = 3
"""Members: two of them are enough to go on."""


class EtcdEnsemble:
    """The members; each keeps its ports and its data whatever happens to its process."""

    def __init__(self, directory: Path, *, max_txn_ops: int = 128) -> None:
        ports = unused_ports(2 * SIZE)
        peers = [f"http://127.0.0.1:{port}" for port in ports[SIZE:]]
        cluster = ",".join(f"m{member}={peer}" for member, peer in enumerate(peers))
        self._members = tuple(
            EtcdProcess(
                [
                    *("--name", f"m{member}", "--data-dir", str(directory / f"data{member}")),
                    *("--listen-client-urls", f"http://127.0.0.1:{port}"),
                    *("--advertise-client-urls", f"http://127.0.0.1:{port}"),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                    *("--initial-cluster", cluster, "--max-txn-ops", str(max_txn_ops), "--log-level", "warn"),
                ],
                port=port,
                log=directory / f"etcd{member}.log",
            )
            for member, (port, peer) in enumerate(zip(ports, peers, strict=False))
        )

    @property
    def members(self) -> range:
        """Numbers of the members."""
        return range(SIZE)

    @property
    def ports(self) -> tuple[int, ...]:
        """Port for clients of each member."""
        return tuple(process.port for process in self._members)

    def url(self, prefix: str = "", *, members: Sequence[int] | None = None) -> str:
        """The address for ``open_store``, of all members or of those given."""
        asked = self.members if members is None else members
        listed = ",".join(f"127.0.0.1:{self.ports[member]}" for member in asked)
        return f"etcd://{listed}{prefix}"

    def start(self) -> None:
        """Start all members and return when each serves."""
        for process in self._members:
            process.launch()
        for process in self._members:
            process.wait_until_ready()

    def launch(self, member: int) -> None:
        """Start one member after a kill, and return at once; it keeps its data."""
        self._members[member].launch()

    def wait_until_ready(self, member: int) -> None:
        """Return when the member serves, which takes a majority."""
        self._members[member].wait_until_ready()

    def restart(self, member: int) -> None:
        """Start one member after a kill and return when it serves; it keeps its data."""
        self.launch(member)
        self.wait_until_ready(member)

    def kill(self, member: int) -> None:
        """Kill -9 one member. Does nothing when it is not running."""
        self._members[member].kill()

    def pause(self, member: int) -> None:
        """SIGSTOP one member: its connections stay open and nothing is answered."""
        self._members[member].pause()

    def resume(self, member: int) -> None:
        """SIGCONT one member."""
        self._members[member].resume()

    def is_running(self, member: int) -> bool:
        """Whether the member is neither killed nor paused."""
        return self._members[member].is_running

    def leader(self) -> int:
        """The member that leads, once all that run agree and it is one of them."""
        give_up_s = time.monotonic() + DEADLINE_S
        while (leader := self._agreed_leader()) is None:
            if time.monotonic() > give_up_s:
                raise AssertionError(f"the running etcd members agreed on no leader within {DEADLINE_S:g} s")
            time.sleep(0.05)
        return leader

    def _agreed_leader(self) -> int | None:
        member_of_id: dict[str, int] = {}
        leaders: set[str] = set()
        for member in self.members:
            if not self.is_running(member):
                continue
            try:
                status = self._members[member].ask("POST", "/v3/maintenance/status")
                member_of_id[status["header"]["member_id"]] = member
                leaders.add(status.get("leader", "0"))
            except (OSError, http.client.HTTPException, ValueError, KeyError):
                return None
        return member_of_id.get(leaders.pop()) if len(leaders) == 1 else None

    def stop(self) -> None:
        """Kill all members."""
        for process in self._members:
            process.kill()
