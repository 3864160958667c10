"""Between kazoo's thread and the loop: hand-over, wake-ups, connections."""

import asyncio
import os
import socket
import struct
import threading

import pytest
from regnum_coordination.drivers.zookeeper.handler import Link, LoopHandler, Wakeups
from regnum_coordination.drivers.zookeeper.mailbox import Mailbox
from regnum_testing.waiting import eventually


async def test_a_flood_from_another_thread_arrives_in_order_and_lets_others_run() -> None:
    """Safety rule S22."""
    mailbox = Mailbox(asyncio.get_running_loop())
    seen: list[int] = []
    turns = 0

    def flood() -> None:
        for number in range(20_000):
            mailbox.put(lambda number=number: seen.append(sum(range(20)) * 0 + number))  # type: ignore[misc]

    thread = threading.Thread(target=flood)
    thread.start()

    async def all_there() -> bool:
        nonlocal turns
        turns += 1
        return len(seen) == 20_000

    await eventually(all_there)
    thread.join()
    assert seen == sorted(seen)
    assert turns > 1


async def test_a_closed_loop_is_no_failure_of_the_thread() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    ran: list[int] = []
    Mailbox(loop).put(lambda: ran.append(1))
    assert not ran


def test_wake_ups_are_counted_and_never_block() -> None:
    wakeups = Wakeups()
    for _ in range(100_000):
        wakeups.send(b"\0")
    for _ in range(100_000):
        assert wakeups.recv(1) == b"\0"
    with pytest.raises(BlockingIOError):
        wakeups.recv(1)
    wakeups.close()
    wakeups.close()
    with pytest.raises(OSError, match="Bad file"):
        wakeups.send(b"\0")


def test_a_link_reads_ahead_and_knows_what_was_granted() -> None:
    ours, theirs = socket.socketpair()
    link = Link(ours)
    theirs.sendall(struct.pack("!iii", 8, 0, 4500) + b"rest")
    assert link.granted_s is None
    assert link.recv(4) == struct.pack("!i", 8)
    assert link.pending() == 12
    assert link.recv(8) == struct.pack("!ii", 0, 4500)
    assert link.granted_s == 4.5
    assert (link.recv(100), link.pending()) == (b"rest", 0)
    theirs.close()
    assert link.recv(1) == b""
    link.close()


def test_an_aborted_link_ends_for_its_reader() -> None:
    ours, theirs = socket.socketpair()
    link = Link(ours)
    link.abort()
    assert link.recv(10) == b""
    assert theirs.recv(10) == b""
    link.close()
    link.abort()
    theirs.close()


def test_select_knows_what_was_read_ahead() -> None:
    handler = LoopHandler(connect_timeout_s=1)
    ours, theirs = socket.socketpair()
    link, wakeups = Link(ours), Wakeups()
    assert handler.select([link, wakeups], [], [], 0) == ([], [], [])
    theirs.sendall(b"abcd")
    assert handler.select([link, wakeups], [], [], 5)[0] == [link]
    link.recv(1)
    wakeups.send(b"\0")
    assert handler.select([link, wakeups], [], [], 5)[0] == [link, wakeups]
    assert handler.select([], [link], [], 5)[1] == [link]
    for closing in (link, wakeups, theirs):
        closing.close()


def test_a_result_is_set_once_and_remembers_the_transaction() -> None:
    handler = LoopHandler(connect_timeout_s=1)
    handler.zxid = lambda: 7
    answer = handler.async_result()
    seen: list[object] = []
    answer.rawlink(lambda result: seen.append((threading.get_ident(), result.value)))
    answer.set("one")
    handler.zxid = lambda: 8
    answer.set_exception(ValueError())
    assert (answer.value, answer.zxid, answer.successful()) == ("one", 7, True)
    assert seen == [(threading.get_ident(), "one")]


def test_a_closed_handler_connects_no_more() -> None:
    handler = LoopHandler(connect_timeout_s=1)
    handler.close()
    with pytest.raises(ConnectionAbortedError):
        handler.create_connection(("127.0.0.1", 1))


def test_wake_ups_are_what_kazoo_takes_for_a_socket_pair() -> None:
    one, two = LoopHandler(connect_timeout_s=1).create_socket_pair()
    assert os.fstat(one.fileno()).st_ino == os.fstat(two.fileno()).st_ino
    one.close()
    two.close()
