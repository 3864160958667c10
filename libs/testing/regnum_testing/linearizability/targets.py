"""Stores of three real servers, as something that faults are done to."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

from regnum_testing.etcd_ensemble import EtcdEnsemble
from regnum_testing.zookeeper_server import ZooKeeperEnsemble


class Target(ABC):
    """Members by number, from 0. Everything that waits blocks: call it beside a loop."""

    members: Final = range(3)
    """Numbers of the members."""

    @abstractmethod
    def url(self) -> str:
        """Address for ``open_store``."""

    @abstractmethod
    def start(self) -> None:
        """Start all members and return when they serve."""

    @abstractmethod
    def stop(self) -> None:
        """End all members."""

    @abstractmethod
    def leader(self) -> int:
        """The member that leads; waits for an election."""

    @abstractmethod
    def kill(self, member: int) -> None:
        """Kill -9."""

    @abstractmethod
    def launch(self, member: int) -> None:
        """Start again after a kill; returns at once."""

    @abstractmethod
    def pause(self, member: int) -> None:
        """SIGSTOP."""

    @abstractmethod
    def resume(self, member: int) -> None:
        """SIGCONT."""

    @abstractmethod
    def wait_until_serving(self, member: int) -> None:
        """Return when a member serves."""


class EtcdTarget(Target):
    """Three etcd members."""

    def __init__(self, directory: Path) -> None:
        self._ensemble = EtcdEnsemble(directory)

    def url(self) -> str:
        """Address of all members."""
        return self._ensemble.url("/linearizability")

    def start(self) -> None:
        """Start all."""
        self._ensemble.start()

    def stop(self) -> None:
        """End all."""
        self._ensemble.stop()

    def leader(self) -> int:
        """The member that leads."""
        return self._ensemble.leader()

    def kill(self, member: int) -> None:
        """Kill -9."""
        self._ensemble.kill(member)

    def launch(self, member: int) -> None:
        """Start again."""
        self._ensemble.launch(member)

    def pause(self, member: int) -> None:
        """SIGSTOP."""
        self._ensemble.pause(member)

    def resume(self, member: int) -> None:
        """SIGCONT."""
        self._ensemble.resume(member)

    def wait_until_serving(self, member: int) -> None:
        """Return when it serves."""
        self._ensemble.wait_until_ready(member)


class ZooKeeperTarget(Target):
    """Three ZooKeeper servers."""

    def __init__(self, directory: Path) -> None:
        self._ensemble = ZooKeeperEnsemble(directory)

    def url(self) -> str:
        """Address of all members."""
        return f"zookeeper://{self._ensemble.endpoints}/linearizability"

    def start(self) -> None:
        """Start all."""
        self._ensemble.start()

    def stop(self) -> None:
        """End all."""
        self._ensemble.kill()

    def leader(self) -> int:
        """The member that leads."""
        return self._ensemble.servers.index(self._ensemble.leader())

    def kill(self, member: int) -> None:
        """Kill -9."""
        self._ensemble.servers[member].kill()

    def launch(self, member: int) -> None:
        """Start again."""
        self._ensemble.servers[member].launch()

    def pause(self, member: int) -> None:
        """SIGSTOP."""
        self._ensemble.servers[member].pause()

    def resume(self, member: int) -> None:
        """SIGCONT."""
        self._ensemble.servers[member].resume()

    def wait_until_serving(self, member: int) -> None:
        """Return when it serves."""
        self._ensemble.servers[member].wait_until_serving()


TARGETS: Final[dict[str, type[EtcdTarget] | type[ZooKeeperTarget]]] = {"etcd": EtcdTarget, "zookeeper": ZooKeeperTarget}
"""By the scheme of their URLs."""


def make_target(coordination: str, directory: Path) -> Target:
    """A store that is not started yet."""
    return TARGETS[coordination](directory)
