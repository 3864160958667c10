"""Ports for servers of tests."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from regnum_service.ports import LOW
from regnum_testing.ports import FIRST, SLICE, SLICES, PortSlice, unused_ports


def test_nobody_is_given_a_port_that_another_one_is_about_to_bind() -> None:
    """Of some hundred fake clusters in a run, one had two servers of one fake cluster at the same port."""
    ports = unused_ports(SLICE // 2)
    assert len(set(ports)) == len(ports)


@pytest.fixture
def slices(tmp_path: Path) -> Iterator[Callable[[], PortSlice]]:
    """Slices of as many processes as one asks for."""
    with ExitStack() as stack:

        def another() -> PortSlice:
            made = PortSlice(tmp_path)
            stack.callback(made.close)
            return made

        yield another


def test_two_processes_have_no_port_in_common(slices: Callable[[], PortSlice]) -> None:
    """One of five thousand servers in a run found its port taken by a process that had chosen it at the same moment."""
    one, other = slices(), slices()
    assert not {one.next() for _ in range(SLICE)} & {other.next() for _ in range(SLICE)}


def test_two_runs_whose_temporary_files_lie_elsewhere_have_no_port_in_common(tmp_path: Path) -> None:
    """The suite's own lie in memory, those of a test that is run beside it on the disk."""
    script = "from regnum_testing.ports import unused_port; print(unused_port(), flush=True); input()"
    first: list[int] = []
    with ExitStack() as stack:
        for name in ("disk", "memory"):
            (tmp_path / name).mkdir()
            environ = {**os.environ, "TMPDIR": str(tmp_path / name)}
            command = [sys.executable, "-P", "-c", script]
            run = stack.enter_context(
                subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            # Its locks are held until it ends, at the end of its input.
            stack.callback(run.communicate, "\n")
            assert run.stdout is not None
            first.append(int(run.stdout.readline()))
    assert abs(first[0] - first[1]) >= SLICE


def test_they_lie_below_those_that_local_clusters_choose(slices: Callable[[], PortSlice]) -> None:
    ports = [slices().next() for _ in range(SLICES)]
    assert min(ports) >= FIRST
    assert max(ports) < LOW
    with pytest.raises(RuntimeError, match="hold all slices"):
        slices().next()


def test_a_process_that_ends_leaves_its_ports_to_others(slices: Callable[[], PortSlice]) -> None:
    one = slices()
    first = one.next()
    one.close()
    assert abs(slices().next() - first) < SLICE


def test_a_port_in_use_is_left_out(slices: Callable[[], PortSlice]) -> None:
    ports = slices()
    taken = ports.next() + 1
    with socket.create_server(("127.0.0.1", taken)):
        assert taken not in {ports.next() for _ in range(SLICE)}
