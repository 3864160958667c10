"""Turns that their clients may keep: what one takes leaves some to others, who take turns."""

import asyncio

from regnum_service.shared_turns import SharedTurns
from regnum_testing.clock import settle


def asking(turns: SharedTurns, client: str, count: int) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(turns.acquire(client)) for _ in range(count)]


def got(tasks: list[asyncio.Task[None]]) -> int:
    return sum(task.done() and not task.cancelled() for task in tasks)


async def test_each_client_has_no_more_than_it_leaves() -> None:
    turns = SharedTurns(16)
    first, second = asking(turns, "a", 20), asking(turns, "b", 20)
    await settle()
    assert (got(first), got(second)) == (8, 4)
    others = [asking(turns, f"c{number}", 1) for number in range(4)]
    await settle()
    assert [got(one) for one in others] == [1, 1, 1, 1]
    late = asking(turns, "late", 2)
    await settle()
    assert got(late) == 0
    assert not turns.is_free_for("later")
    turns.release("a")
    await settle()
    assert (got(first), got(late)) == (8, 1), "it goes to one that has none, though another came before"
    for task in (*first, *second, *late):
        task.cancel()
    await settle()
    for client, count in {"a": 7, "b": 4, "late": 1, "c0": 1, "c1": 1, "c2": 1, "c3": 1}.items():
        for _ in range(count):
            turns.release(client)
    assert turns.clients == 0
    assert turns.is_free_for("a")


async def test_clients_take_turns_and_each_in_its_order() -> None:
    turns = SharedTurns(1)
    order: list[str] = []

    async def ask(client: str, name: str) -> None:
        await turns.acquire(client)
        order.append(name)

    await turns.acquire("x")
    tasks = [asyncio.create_task(ask(name[0], name)) for name in ("a1", "a2", "a3", "b1", "b2", "c1")]
    await settle()
    for client in ("x", "a", "b", "c", "a", "b", "a"):
        turns.release(client)
        await settle()
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]
    assert turns.clients == 0
    await asyncio.gather(*tasks)


async def test_who_gives_up_leaves_nothing() -> None:
    turns = SharedTurns(1)
    await turns.acquire("x")
    waiting, given = asking(turns, "a", 1), asking(turns, "b", 1)
    await settle()
    waiting[0].cancel()
    await settle()
    turns.release("x")
    # It has been given the turn, and has not heard of it.
    given[0].cancel()
    await settle()
    assert turns.clients == 0
    assert turns.is_free_for("a")


async def test_a_connection_that_breaks_gives_up_all_at_once() -> None:
    turns = SharedTurns(4)
    mine, others = asking(turns, "a", 6), asking(turns, "b", 2)
    await settle()
    assert (got(mine), got(others)) == (2, 1)
    for task in mine:
        task.cancel()
    # Before the tasks that were cancelled have come to say so.
    turns.release("a")
    turns.release("a")
    await settle()
    assert (got(mine), got(others)) == (2, 2)
    turns.release("b")
    turns.release("b")
    assert turns.clients == 0
