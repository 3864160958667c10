"""The loop is free while a process reads, shows and forgets as many delegation tokens as a cluster has (rule S22)."""

import random
import tracemalloc
from collections.abc import Sequence

import pytest
from regnum_coordination.port import Node, Stat
from regnum_election.tokens.calls import PAGE_MAX, TokenCalls
from regnum_election.tokens.messages import token_message
from regnum_model.delegation_tokens import TOKENS_MAX, DelegationToken, Lives, Secrets, path_of, token_id_of
from regnum_model.principals import Principal
from regnum_service.access.authorization import EverybodyMay
from regnum_service.access.identity import Caller, calling
from regnum_service.access.tokens.process import ProcessTokens
from regnum_service.access.tokens.table import TokenTable
from regnum_testing.clock import FakeClock
from regnum_testing.held_loop import HeldLoop, run_measured

NOW_MS = FakeClock().wall_ms()
STAT = Stat(creation_id=1, modification_id=1, version=0, children_id=1, ephemeral_owner=None)
BYTES_OF_ONE_MAX = 1_500
MEASURED = 2_000


def token(number: int) -> DelegationToken:
    return DelegationToken(
        id=token_id_of(number.to_bytes(8, "big")),
        owner=Principal(f"user-{number % 500}"),
        requester=Principal(f"user-{number % 500}"),
        renewers=(Principal("yarn"), Principal(f"renewer-{number}")),
        issued_ms=NOW_MS,
        expiry_ms=NOW_MS + 1_000_000,
        max_ms=NOW_MS + 9_000_000,
    )


class Nodes:
    """Reads as a store answers them, without a store's own work on this loop."""

    def __init__(self) -> None:
        self._nodes = {path_of(one.id): Node(data=one.encode(), stat=STAT) for one in map(token, range(TOKENS_MAX))}
        self._names: tuple[str, ...] = tuple(path.rpartition("/")[2] for path in self._nodes)

    def swept(self) -> None:
        """While a process has no session all of them end."""
        self._nodes, self._names = {}, ()

    async def names(self, folder: str) -> tuple[str, ...]:
        return self._names

    async def read_many(self, wanted: Sequence[str]) -> dict[str, Node]:
        return {path: self._nodes[path] for path in wanted}


@pytest.mark.full
@pytest.mark.alone
def test_all_tokens_are_read_and_described() -> None:
    async def scenario(held: HeldLoop) -> None:
        clock, nodes = FakeClock(), Nodes()
        tokens = ProcessTokens(Secrets(b"s" * 32), clock)
        for part in ("read", "read again"):
            with held.measuring(part):
                await tokens._follower._read_all(nodes)
        assert len(tokens.table) == TOKENS_MAX
        calls = TokenCalls(tokens, lives=Lives(), authorizer=EverybodyMay(), clock=clock, chance=random.Random(1))
        with calling(Caller(principal=Principal("admin"), encrypted=True)):
            with held.measuring("described"):
                page = await calls.describe((), token="", size=PAGE_MAX)
            with held.measuring("described again"):
                following_page = await calls.describe((), token=page.next_page_token, size=PAGE_MAX)
        assert len(page.tokens) == len(following_page.tokens) == PAGE_MAX
        assert page.tokens[-1].id < following_page.tokens[0].id
        assert token_message(page.tokens[0]).owner
        nodes.swept()
        with held.measuring("gone at once"):
            await tokens._follower._read_all(nodes)
        assert len(tokens.table) == 0

    run_measured(scenario).assert_free()


@pytest.mark.full
def test_all_tokens_of_a_cluster_fit_into_some_hundred_megabytes() -> None:
    tracemalloc.start()
    try:
        table = TokenTable()
        for number in range(MEASURED):
            table.put(DelegationToken.decode(token(number).id, token(number).encode()))
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(table) == MEASURED
    assert held_bytes / MEASURED < BYTES_OF_ONE_MAX
