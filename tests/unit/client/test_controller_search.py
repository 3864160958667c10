"""The way to the controller: at once where somebody knows it, with patience where nobody does."""

import random
from dataclasses import dataclass

import pytest
from regnum.types.v1 import errors_pb2
from regnum_client.admin.carrying.repeating import matched, mutation_id, until_answered
from regnum_client.cluster.controller_search import AT_ONCE_MAX, ControllerSearch
from regnum_client.cluster.metadata import Metadata
from regnum_client.errors import NoControllerError
from regnum_model.nodes import Address
from regnum_service.errors import ExitStatus, RegnumError, UnansweredError

A, B, C = (Address(host="127.0.0.1", port=port) for port in (9001, 9002, 9003))


@dataclass
class Controller:
    address: Address
    epoch: int
    id: int = 1


class Time:
    """Passes while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.sleeps = 0

    def monotonic(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.sleeps += 1


class Known(Metadata):
    """Metadata that says what a test says."""

    def __init__(self, controller: Controller | None, *, elected: Controller | None = None, after: int = 0) -> None:
        self.controller = controller
        self.asked = 0
        self._elected, self._after = elected, after

    @property
    def view(self) -> "Known":  # type: ignore[override]
        return self

    async def newer_than(self, moment_s: float, *, timeout_s: float) -> None:
        self.asked += 1
        if self.asked == self._after:
            self.controller = self._elected


def search(known: Known, time: Time, *, timeout_s: float = 30.0) -> ControllerSearch:
    return ControllerSearch(known, clock=time, chance=random.Random(1), timeout_s=timeout_s)


def elsewhere(address: Address, epoch: int) -> RegnumError:
    return RegnumError(
        errors_pb2.ERROR_CODE_NOT_CONTROLLER,
        "ask the controller",
        metadata={"controller_id": "2", "controller_epoch": str(epoch), "controller_address": str(address)},
    )


async def test_who_is_told_of_the_controller_is_there_at_once() -> None:
    known, time = Known(Controller(A, 1)), Time()
    asked: list[Address] = []

    async def ask(address: Address, _left_s: float) -> str:
        asked.append(address)
        if address == A:
            raise elsewhere(B, 2)
        return "done"

    assert await until_answered(search(known, time), ask) == "done"
    assert asked == [A, B]
    assert (time.sleeps, known.asked) == (0, 0)


async def test_two_who_name_one_another_are_not_asked_as_fast_as_they_answer() -> None:
    known, time = Known(Controller(A, 1)), Time()
    asked: list[Address] = []

    async def ask(address: Address, _left_s: float) -> str:
        asked.append(address)
        raise elsewhere(B if address == A else A, 5)

    with pytest.raises(RegnumError) as raised:
        await until_answered(search(known, time, timeout_s=30.0), ask)
    assert raised.value.code == errors_pb2.ERROR_CODE_NOT_CONTROLLER
    assert time.now_s >= 130.0
    assert 30 < len(asked) < 600


async def test_one_who_names_ever_new_controllers_is_not_followed_for_ever_without_a_pause() -> None:
    known, time = Known(Controller(A, 1)), Time()
    calls = 0

    async def ask(_address: Address, _left_s: float) -> str:
        nonlocal calls
        calls += 1
        raise elsewhere(Address(host="127.0.0.1", port=10_000 + calls), calls)

    with pytest.raises(RegnumError):
        await until_answered(search(known, time, timeout_s=5.0), ask)
    assert calls <= AT_ONCE_MAX + time.sleeps + 1
    assert time.now_s >= 105.0


async def test_while_a_controller_is_elected_the_request_waits_and_is_then_answered() -> None:
    known, time = Known(None, elected=Controller(C, 7), after=20), Time()

    async def ask(address: Address, _left_s: float) -> Address:
        return address

    assert await until_answered(search(known, time), ask) == C
    assert known.asked == 20
    assert time.sleeps == 20


async def test_without_a_controller_the_deadline_ends_it_with_words() -> None:
    known, time = Known(None), Time()

    async def ask(_address: Address, _left_s: float) -> None:
        raise AssertionError("there is nobody to ask")

    with pytest.raises(RegnumError, match="no controller answers \\(the brokers know of none\\)") as raised:
        await until_answered(search(known, time, timeout_s=3.0), ask)
    assert raised.value.metadata["last_error"] == "no controller was elected within 3 s"
    assert raised.value.traits.exit_status == ExitStatus.UNAVAILABLE
    assert 103.0 <= time.now_s < 104.0


async def test_who_never_gave_the_address_is_told_whose_it_is_and_what_to_do() -> None:
    known, time = Known(Controller(A, 5)), Time()

    async def ask(address: Address, _left_s: float) -> None:
        raise UnansweredError(errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE, f"failed to connect to {address}")

    with pytest.raises(NoControllerError) as raised:
        await until_answered(search(known, time, timeout_s=3.0), ask)
    assert raised.value.message == (
        f"no controller answers (last known: election process 1 at {A}, epoch 5); brokers and clients go on; start an"
        " election process, or see its log"
    )
    assert raised.value.code == errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE
    facts = {"controller_id": "1", "controller_epoch": "5", "controller_address": str(A)}
    assert raised.value.metadata == {**facts, "last_error": f"failed to connect to {A}"}


async def test_a_call_that_was_not_answered_in_time_may_have_been_carried_out() -> None:
    async def ask(_address: Address, _left_s: float) -> None:
        raise UnansweredError(errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, "Deadline Exceeded")

    with pytest.raises(NoControllerError, match="look before repeating") as raised:
        await until_answered(search(Known(Controller(A, 5)), Time(), timeout_s=3.0), ask)
    assert not raised.value.traits.outcome_known


async def test_what_the_controller_itself_answers_is_said_as_it_is() -> None:
    async def ask(_address: Address, _left_s: float) -> None:
        raise RegnumError(errors_pb2.ERROR_CODE_REQUEST_TIMED_OUT, "not all leaders were elected in time")

    with pytest.raises(RegnumError, match=r"^not all leaders were elected in time$"):
        await until_answered(search(Known(Controller(A, 5)), Time(), timeout_s=3.0), ask)


async def test_an_older_epoch_leads_nobody_back() -> None:
    known, time = Known(Controller(A, 9)), Time()
    asked: list[Address] = []

    async def ask(address: Address, _left_s: float) -> str:
        asked.append(address)
        if len(asked) == 1:
            raise elsewhere(B, 3)
        return "done"

    assert await until_answered(search(known, time), ask) == "done"
    assert asked == [A, A]


async def test_what_cannot_be_repeated_with_another_end_is_not_repeated() -> None:
    calls = 0

    async def ask(_address: Address, _left_s: float) -> None:
        nonlocal calls
        calls += 1
        raise RegnumError(errors_pb2.ERROR_CODE_INVALID_REQUEST, "wrong")

    with pytest.raises(RegnumError, match=r"^wrong$"):
        await until_answered(search(Known(Controller(A, 1)), Time()), ask, look="regnum configs describe")
    assert calls == 1


def test_an_answer_belongs_to_what_was_asked() -> None:
    assert matched(["a", "b"], ["a", "b"], lambda wanted, got: wanted == got) == [("a", "a"), ("b", "b")]
    for foreign in (["a"], ["b", "a"], ["a", "b", "c"], []):
        with pytest.raises(RegnumError, match="names other things"):
            matched(["a", "b"], foreign, lambda wanted, got: wanted == got)


def test_every_change_has_an_id_of_its_own() -> None:
    assert len({mutation_id(random.Random()) for _ in range(1_000)}) == 1_000
