"""Between kazoo's thread and the loop: hand-over, wake-ups, connections."""

import asyncio
import os
import socket
import struct
import threading
from contextlib import suppress

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


def test_an_answer_that_has_come_is_asked_for_once() -> None:
    """Each question gives the interpreter away, and a busy loop gives it back late."""
    handler = LoopHandler(connect_timeout_s=1)
    ours, theirs = socket.socketpair()
    link, wakeups = Link(ours), Wakeups()
    theirs.sendall(b"abcd")
    assert handler.select([link, wakeups], [], [], 5)[0] == [link]
    # Whoever asked the kernel now would be told that there is nothing.
    assert ours.recv(4) == b"abcd"
    assert handler.select([link], [], [], 0)[0] == [link]
    theirs.sendall(b"efgh")
    assert link.recv(2) == b"ef"
    assert handler.select([link], [], [], 0)[0] == [link]
    assert link.recv(2) == b"gh"
    assert handler.select([link], [], [], 0)[0] == []
    for closing in (link, wakeups, theirs):
        closing.close()


def test_a_write_is_tried_and_waits_only_where_it_does_not_fit() -> None:
    handler = LoopHandler(connect_timeout_s=1)
    ours, theirs = socket.socketpair()
    link = Link(ours)
    link.setblocking(False)
    with suppress(BlockingIOError):
        while ours.send(b"." * 65536):
            pass
    # The kernel would say that nothing can be written, and so does the attempt, after its time.
    assert handler.select([], [link], [], 0.01)[1] == [link]
    with pytest.raises(TimeoutError, match="takes nothing more"):
        link.send(b"more")
    assert handler.select([], [link], [], 30)[1] == [link]
    reader = threading.Thread(target=lambda: theirs.recv(1 << 20))
    reader.start()
    assert link.send(b"more") == 4
    reader.join()
    link.close()
    theirs.close()


def test_a_tls_connection_is_asked_before_each_write() -> None:
    """It may have to read before it can write."""

    class Ciphered:
        def __init__(self, connection: socket.socket) -> None:
            self.fileno, self.send, self.recv, self.close = (
                connection.fileno,
                connection.send,
                connection.recv,
                connection.close,
            )

        def pending(self) -> int:
            return 0

    handler = LoopHandler(connect_timeout_s=1)
    ours, theirs = socket.socketpair()
    link = Link(Ciphered(ours))
    ours.setblocking(False)
    with suppress(BlockingIOError):
        while ours.send(b"." * 65536):
            pass
    assert handler.select([], [link], [], 0.01)[1] == []
    with pytest.raises(BlockingIOError):
        link.send(b"more")
    link.close()
    theirs.close()
