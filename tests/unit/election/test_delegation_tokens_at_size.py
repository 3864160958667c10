"""The loop is free while a process reads, shows and forgets as many delegation tokens as a cluster has (rule S22)."""

import asyncio
import random
import tracemalloc

import pytest
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.recipes.folders import ensure_folders
from regnum_election.tokens.calls import PAGE_MAX, TokenCalls
from regnum_election.tokens.messages import token_message
from regnum_model.delegation_tokens import FOLDER, TOKENS_MAX, DelegationToken, Lives, Secrets, path_of, token_id_of
from regnum_model.principals import Principal
from regnum_model.quotas import CHANGES
from regnum_service.access.authorization import EverybodyMay
from regnum_service.access.identity import Caller, calling
from regnum_service.access.tokens.process import ProcessTokens
from regnum_service.access.tokens.table import TokenTable
from regnum_testing.clock import FakeClock
from regnum_testing.held_loop import HeldLoop, run_measured
from regnum_testing.waiting import eventually

NOW_MS = FakeClock().wall_ms()
BYTES_OF_ONE_MAX = 1_500


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


@pytest.mark.alone
def test_all_tokens_are_read_and_described() -> None:
    async def scenario(held: HeldLoop) -> None:
        clock, store = FakeClock(), MemoryStore(MemoryServer())
        await ensure_folders(store, (FOLDER, CHANGES), clock)
        for number in range(TOKENS_MAX):
            await store.create(path_of(token(number).id), token(number).encode())
        tokens = ProcessTokens(Secrets(b"s" * 32), clock)

        async def ready() -> MemoryStore:
            return store

        async def known() -> bool:
            return tokens.is_known

        with held.measuring("read"):
            following = asyncio.create_task(tokens.follow(ready))
            await eventually(known)
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
        following.cancel()

    run_measured(scenario).assert_free()


@pytest.mark.full
def test_all_tokens_of_a_cluster_fit_into_some_hundred_megabytes() -> None:
    tracemalloc.start()
    try:
        table = TokenTable()
        for number in range(TOKENS_MAX):
            table.put(DelegationToken.decode(token(number).id, token(number).encode()))
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(table) == TOKENS_MAX
    assert held_bytes / TOKENS_MAX < BYTES_OF_ONE_MAX
