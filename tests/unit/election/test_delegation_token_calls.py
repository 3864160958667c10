"""Delegation tokens at the controller and in processes that follow: made once, renewed, ended, swept up."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from regnum.types.v1 import errors_pb2
from regnum_coordination.drivers.memory import MemoryServer, MemoryStore
from regnum_coordination.port import Operation, OperationResult
from regnum_coordination.recipes.folders import ensure_folders
from regnum_coordination.recipes.resolved_store import ResolvedStore
from regnum_election.candidacy.role import ControllerRole
from regnum_election.tokens.calls import SHOWN_AGAIN_MS, TokenCalls
from regnum_election.tokens.sweeping import TokenSweeper
from regnum_model.access import CLUSTER_NAME, ResourceType
from regnum_model.access import Operation as Op
from regnum_model.delegation_tokens import DAY_MS, FOLDER, Creation, DelegationToken, Lives, Secrets, path_of
from regnum_model.mutations import REPEATED_MS
from regnum_model.principals import NOBODY, Principal
from regnum_model.quotas import CHANGES
from regnum_service.access.authorization import EverybodyMay
from regnum_service.access.identity import Caller, calling
from regnum_service.access.tokens.check import SCHEME
from regnum_service.access.tokens.process import ProcessTokens
from regnum_service.errors import RegnumError, reason_of
from regnum_testing.clock import FakeClock, settle
from regnum_testing.waiting import eventually

SECRETS = Secrets(b"s" * 32)
LIVES = Lives()


def by_tls(name: str, *, token: bool = False, encrypted: bool = True) -> Caller:
    return Caller(principal=Principal(name, token_authenticated=token), encrypted=encrypted)


ALICE, BOB, YARN = by_tls("alice"), by_tls("bob"), by_tls("yarn")


@dataclass
class Rights(EverybodyMay):
    """Allows what stands in it: who, operation, name."""

    held: set[tuple[str, Op, str]] = field(default_factory=set)

    def allows(self, who: Caller, operation: Op, type: ResourceType, name: str = CLUSTER_NAME, **_: object) -> bool:
        return (who.principal.name, operation, name) in self.held


class World:
    """A controller, and another process that follows."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.server = MemoryServer()
        self.store = MemoryStore(self.server)
        self.writes = ResolvedStore(self.store, self.clock, deadline_s=5)
        self.rights = Rights()
        self.tokens, self.other = ProcessTokens(SECRETS, self.clock), ProcessTokens(SECRETS, self.clock)
        self.calls = TokenCalls(
            self.tokens, lives=LIVES, authorizer=self.rights, clock=self.clock, chance=random.Random(1)
        )
        self.sweeper = TokenSweeper(ControllerRole(), self.tokens.table, self.clock)

    async def ready(self) -> MemoryStore:
        return self.store

    async def stored(self) -> dict[str, DelegationToken]:
        names = (await self.store.children(FOLDER)).names
        return {name: DelegationToken.decode(name, (await self.store.get(path_of(name))).data) for name in names}

    async def follows(self) -> bool:
        """Whether the other process knows what the store has."""
        return {token.id: token for token in self.other.table} == await self.stored()


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    made = World()
    await ensure_folders(made.store, (FOLDER, CHANGES), made.clock)
    tasks = [asyncio.create_task(one.follow(made.ready)) for one in (made.tokens, made.other)]
    await eventually(lambda: _true(made.tokens.is_known and made.other.is_known))
    try:
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _true(condition: bool) -> bool:
    return condition


async def refusal(work: object) -> str:
    with pytest.raises(RegnumError) as refused:
        await work  # type: ignore[misc]
    return reason_of(refused.value.code)


async def test_a_token_that_was_made_is_known_to_every_process_and_its_proof_is_nowhere_in_the_store() -> None:
    async with world() as w:
        with calling(ALICE):
            token, credential = await w.calls.create(w.writes, Creation(renewers=(YARN.principal,)), mutation=None)
        await eventually(w.follows)
        assert (await w.stored()) == {token.id: token}
        assert token.owner == token.requester == ALICE.principal
        assert token.max_ms == w.clock.wall_ms() + 7 * DAY_MS
        metadata = [("authorization", SCHEME + credential)]
        check = w.other._check
        assert check.check(metadata) == Principal("alice", token_authenticated=True)
        proof = credential.partition(".")[2].encode()
        data = (await w.store.get(path_of(token.id))).data
        assert proof not in data
        assert SECRETS.prove(token.id).hex().encode() not in data


async def test_a_repeated_creation_answers_with_the_same_token_also_at_the_next_controller() -> None:
    async with world() as w:
        with calling(ALICE):
            first = await w.calls.create(w.writes, Creation(), mutation="m")
            await w.clock.advance(5)
            again = TokenCalls(w.other, lives=LIVES, authorizer=w.rights, clock=w.clock, chance=random.Random(2))
            await eventually(w.follows)
            assert await again.create(w.writes, Creation(), mutation="m") == first
            assert await refusal(again.create(w.writes, Creation(life_ms=5), mutation="m")) == "INVALID_REQUEST"
        with calling(BOB):
            other, _ = await w.calls.create(w.writes, Creation(), mutation="m")
        assert other.id != first[0].id, "nobody gets a token by guessing somebody's mutation id"
        assert len(await w.stored()) == 2


async def test_what_proves_a_token_is_shown_again_for_five_minutes_and_only_to_who_asked_for_it() -> None:
    async with world() as w:
        with calling(ALICE):
            token, credential = await w.calls.create(w.writes, Creation(), mutation="m")
            await w.clock.advance(SHOWN_AGAIN_MS / 1_000)
            assert await w.calls.create(w.writes, Creation(), mutation="m") == (token, credential)
            await w.clock.advance(0.001)
            assert await w.calls.create(w.writes, Creation(), mutation="m") == (token, "")
        with calling(BOB):
            (bobs, _) = await w.calls.create(w.writes, Creation(), mutation="m")
        # By hand: nothing that is asked for here makes a token of that id for somebody else.
        node = await w.store.get(path_of(bobs.id))
        forged = replace(DelegationToken.decode(bobs.id, node.data), requester=ALICE.principal)
        await w.store.set(path_of(bobs.id), forged.encode(), version=node.stat.version)
        with calling(BOB):
            assert (
                await refusal(w.calls.create(w.writes, Creation(), mutation="m")) == "DELEGATION_TOKEN_OWNER_MISMATCH"
            )


async def test_tokens_that_are_asked_for_all_at_a_time_are_all_made() -> None:
    """Each is announced under the next number: of many at a time one would get through in each round."""
    async with world() as w:

        async def make(number: int) -> str:
            return (await w.calls.create(w.writes, Creation(), mutation=f"m{number}"))[0].id

        with calling(ALICE):
            ids = await asyncio.gather(*(make(number) for number in range(220)))
        assert set(await w.stored()) == set(ids)
        assert len(set(ids)) == len(ids)


class Interrupted(ResolvedStore):
    """Writes, and the process is killed before anybody hears of it."""

    async def multi(self, operations: Sequence[Operation]) -> tuple[OperationResult, ...]:
        await super().multi(operations)
        raise asyncio.CancelledError


async def test_a_controller_that_dies_after_its_write_leaves_a_token_that_the_repeat_finds() -> None:
    async with world() as w:
        with calling(ALICE):
            with pytest.raises(asyncio.CancelledError):
                await w.calls.create(Interrupted(w.store, w.clock, deadline_s=5), Creation(), mutation="m")
            (left,) = (await w.stored()).values()
            await w.clock.advance(100)
            token, _ = await w.calls.create(w.writes, Creation(), mutation="m")
        assert token == left


@pytest.mark.parametrize(
    "who", [by_tls("alice", encrypted=False), by_tls("alice", token=True), Caller(principal=NOBODY, encrypted=True)]
)
async def test_no_call_about_tokens_is_answered_without_tls_a_name_or_to_a_token(who: Caller) -> None:
    async with world() as w:
        with calling(ALICE):
            token, _ = await w.calls.create(w.writes, Creation(), mutation=None)
        with calling(who):
            for work in (
                w.calls.create(w.writes, Creation(), mutation=None),
                w.calls.renew(w.writes, token.id, period_ms=-1, mutation=None),
                w.calls.expire(w.writes, token.id, period_ms=-1, mutation=None),
                w.calls.describe((), token="", size=0),
            ):
                assert await refusal(work) == "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
        assert await w.stored() == {token.id: token}


async def test_where_the_cluster_has_no_secret_there_are_no_tokens() -> None:
    async with world() as w:
        off = TokenCalls(
            ProcessTokens(None, w.clock), lives=LIVES, authorizer=w.rights, clock=w.clock, chance=random.Random(1)
        )
        with calling(ALICE):
            assert await refusal(off.create(w.writes, Creation(), mutation=None)) == "DELEGATION_TOKEN_AUTH_DISABLED"
        with calling(by_tls("alice", token=True)):
            assert (
                await refusal(off.create(w.writes, Creation(), mutation=None)) == "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
            )


async def test_a_token_for_somebody_else_needs_the_right_to_make_it() -> None:
    async with world() as w:
        wanted = Creation(owner=BOB.principal)
        with calling(ALICE):
            create = w.calls.create(w.writes, wanted, mutation=None)
            assert await refusal(create) == "DELEGATION_TOKEN_AUTHORIZATION_FAILED"
            assert await w.stored() == {}
            w.rights.held.add(("alice", Op.CREATE_TOKENS, "User:bob"))
            token, _ = await w.calls.create(w.writes, wanted, mutation=None)
        assert (token.owner, token.requester) == (BOB.principal, ALICE.principal)


async def test_a_token_is_renewed_and_a_repeat_is_told_what_was_answered_first() -> None:
    async with world() as w:
        with calling(ALICE):
            token, _ = await w.calls.create(w.writes, Creation(renewers=(YARN.principal,)), mutation=None)
        await w.clock.advance(3_600)
        with calling(YARN):
            expiry_ms = await w.calls.renew(w.writes, token.id, period_ms=-1, mutation="r")
            assert expiry_ms == w.clock.wall_ms() + DAY_MS
            await w.clock.advance(60)
            assert await w.calls.renew(w.writes, token.id, period_ms=-1, mutation="r") == expiry_ms
        assert (await w.stored())[token.id].expiry_ms == expiry_ms
        with calling(BOB):
            renewing = w.calls.renew(w.writes, token.id, period_ms=-1, mutation=None)
            assert await refusal(renewing) == "DELEGATION_TOKEN_OWNER_MISMATCH"
        await eventually(w.follows)


async def test_a_token_that_is_ended_at_once_is_refused_everywhere_and_its_node_goes_when_no_repeat_may_come() -> None:
    async with world() as w:
        with calling(ALICE):
            token, credential = await w.calls.create(w.writes, Creation(), mutation="m")
            ended_ms = await w.calls.expire(w.writes, token.id, period_ms=-1, mutation="e")
            assert ended_ms == w.clock.wall_ms()
            await w.clock.advance(1)
            assert await w.calls.expire(w.writes, token.id, period_ms=-1, mutation="e") == ended_ms
            renewing = w.calls.renew(w.writes, token.id, period_ms=-1, mutation=None)
            assert await refusal(renewing) == "DELEGATION_TOKEN_EXPIRED"
            assert (await w.calls.describe((), token="", size=0)).tokens == []
        await eventually(w.follows)
        with pytest.raises(RegnumError):
            w.other._check.check([("authorization", SCHEME + credential)])
        assert await w.sweeper.sweep(w.writes) == 0, "a repeat may still come"
        await w.clock.advance(REPEATED_MS / 1_000)
        assert await w.sweeper.sweep(w.writes) == 1
        assert await w.stored() == {}
        await eventually(w.follows)


async def test_a_token_without_mutation_ids_is_swept_up_as_soon_as_it_is_ended() -> None:
    async with world() as w:
        with calling(ALICE):
            token, _ = await w.calls.create(w.writes, Creation(), mutation=None)
            await w.calls.expire(w.writes, token.id, period_ms=-1, mutation=None)
            assert await w.sweeper.sweep(w.writes) == 1
            assert await w.stored() == {}
            again = w.calls.expire(w.writes, token.id, period_ms=-1, mutation=None)
            assert await refusal(again) == "DELEGATION_TOKEN_NOT_FOUND"
        await eventually(w.follows)


async def test_the_sweep_takes_what_has_expired_and_leaves_what_was_renewed_meanwhile_or_cannot_be_read() -> None:
    async with world() as w:
        with calling(ALICE):
            dead, _ = await w.calls.create(w.writes, Creation(life_ms=1_000), mutation=None)
            live, _ = await w.calls.create(w.writes, Creation(), mutation=None)
            renewed, _ = await w.calls.create(w.writes, Creation(life_ms=2 * DAY_MS), mutation=None)
        await w.clock.advance(DAY_MS / 1_000 - 10)
        with calling(ALICE):
            await w.calls.renew(w.writes, live.id, period_ms=-1, mutation=None)
            # Another controller renews it; this one has not heard of that yet.
            await w.calls.renew(w.writes, renewed.id, period_ms=-1, mutation=None)
        w.tokens.table.put(renewed)
        await w.store.create(f"{FOLDER}/by-hand", b"no token")
        await w.clock.advance(20)
        assert await w.sweeper.sweep(w.writes) == 1
        names = (await w.store.children(FOLDER)).names
        assert set(names) == {live.id, renewed.id, "by-hand"}
        assert dead.id not in names


async def test_everybody_sees_their_own_tokens_page_by_page_and_those_they_have_a_right_to() -> None:
    async with world() as w:
        for who in (ALICE, ALICE, ALICE, BOB):
            with calling(who):
                await w.calls.create(w.writes, Creation(renewers=(YARN.principal,)), mutation=None)

        async def seen(who: Caller, owners: Sequence[Principal] = (), size: int = 0) -> list[list[str]]:
            pages, place = [], ""
            while True:
                with calling(who):
                    page = await w.calls.describe(owners, token=place, size=size)
                pages.append([token.owner.name for token in page.tokens])
                place = page.next_page_token
                if not place:
                    return pages

        assert await seen(ALICE) == [["alice"] * 3]
        assert await seen(ALICE, size=2) == [["alice"] * 2, ["alice"]]
        assert sorted((await seen(YARN))[0]) == ["alice", "alice", "alice", "bob"]
        assert await seen(YARN, [BOB.principal]) == [["bob"]]
        assert await seen(by_tls("eve")) == [[]]
        w.rights.held.add(("eve", Op.DESCRIBE_TOKENS, "User:bob"))
        assert await seen(by_tls("eve")) == [["bob"]]
        (one,) = [token.id for token in w.tokens.table if token.owner == BOB.principal]
        w.rights.held = {("eve", Op.DESCRIBE, one)}
        assert await seen(by_tls("eve")) == [["bob"]]


async def test_what_somebody_broke_or_wrote_by_hand_lets_nobody_in_and_a_correction_is_taken_up() -> None:
    async with world() as w:
        with calling(ALICE):
            token, credential = await w.calls.create(w.writes, Creation(), mutation=None)
        good = (await w.store.get(path_of(token.id))).data
        await w.store.set(path_of(token.id), b"broken", version=None)
        await w.store.create(f"{CHANGES}/by-hand", b"")
        await eventually(lambda: _true(not len(w.other.table)))
        with pytest.raises(RegnumError) as refused:
            w.other._check.check([("authorization", SCHEME + credential)])
        assert refused.value.code == errors_pb2.ERROR_CODE_SASL_AUTHENTICATION_FAILED
        await w.store.set(path_of(token.id), good, version=None)
        await w.store.create(f"{CHANGES}/by-hand-again", b"")
        await eventually(w.follows)
        await settle()
