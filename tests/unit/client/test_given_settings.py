"""What is given to the SDK is what the annotations say, or refused where it is given, with what is allowed."""

import asyncio
import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import regnum_client
import regnum_client.sync
from regnum.types.v1 import errors_pb2
from regnum_client import EARLIEST, Admin, AtTime, Consumer, ConsumerSettings, Producer, ProducerSettings, ResetPolicy
from regnum_client.allowed import Between, _parameters, checked, words
from regnum_service.errors import RegnumError

NOWHERE = "127.0.0.1:1"
WRONG: tuple[Any, ...] = (
    object(),
    [1.5],
    {"a": object()},
    math.nan,
    math.inf,
    -1,
    True,
    b"bytes",
    "no such word",
    None,
)
"""At least one of these is wrong for anything that is given."""
FRONTS = (regnum_client.sync.Admin, regnum_client.sync.Consumer, regnum_client.sync.Producer)
CLASSES = (Admin, Consumer, Producer, *FRONTS)


def refused(make: Callable[[], object], *, naming: str) -> bool:
    """Whether a value is refused as it should be; any other error is none that a caller could use."""
    said = RegnumError(errors_pb2.ERROR_CODE_NONE, "")
    try:
        made = make()
        if inspect.iscoroutine(made):
            # What is refused is refused before anything else: the client is not open.
            asyncio.run(made)
    except RegnumError as error:
        said = error
    if said.code != errors_pb2.ERROR_CODE_INVALID_CONFIG:
        return False
    assert naming in said.message
    assert "; give " in said.message
    return True


@pytest.mark.parametrize("kind", [ProducerSettings, ConsumerSettings])
def test_every_setting_refuses_what_it_cannot_be(kind: type) -> None:
    for field in dataclasses.fields(kind):
        taken = [one for one in WRONG if not refused(partial(kind, **{field.name: one}), naming=field.name)]
        assert len(taken) <= 5, f"{field.name} takes {taken}"
        assert WRONG[0] not in taken


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (ProducerSettings, {"compression": "zstdd"}),
        (ProducerSettings, {"acks": 2}),
        (ProducerSettings, {"acks": True}),
        (ProducerSettings, {"acks": "1"}),
        (ProducerSettings, {"in_flight_max": 6}),
        (ProducerSettings, {"in_flight_max": 0}),
        (ProducerSettings, {"linger_ms": math.nan}),
        (ProducerSettings, {"delivery_timeout_s": 0}),
        (ConsumerSettings, {"auto_offset_reset": "earlest"}),
        (ConsumerSettings, {"reset": "EARLIEST"}),
        (ConsumerSettings, {"session_timeout_s": -1}),
        (ConsumerSettings, {"fetch_wait_ms": 2**31}),
        (ConsumerSettings, {"partition_assignment_strategy": "range"}),
        (ConsumerSettings, {"client_rack": b"a"}),
    ],
)
def test_settings_are_refused_where_they_are_given(kind: type, given: dict[str, object]) -> None:
    (name,) = given
    assert refused(lambda: kind(**given), naming=f"{kind.__name__}.{name}")


def test_what_is_obvious_is_taken() -> None:
    assert ResetPolicy.of(ConsumerSettings(auto_offset_reset="earliest").auto_offset_reset) is ResetPolicy.EARLIEST
    assert ResetPolicy.of(ConsumerSettings(reset=EARLIEST).reset) is ResetPolicy.EARLIEST  # type: ignore[arg-type]
    assert ResetPolicy.of(ConsumerSettings(reset="none").reset) is ResetPolicy.FAIL
    assert ProducerSettings(acks="all").numbers_batches
    assert not ProducerSettings(acks=1).numbers_batches
    assert ProducerSettings(compression=None, in_flight_max=9, idempotent=False).in_flight_max == 9
    assert ConsumerSettings(partition_assignment_strategy=["range"]).partition_assignment_strategy == ["range"]


def parameters() -> Iterator[tuple[type, str, str]]:
    """Of all public methods, and the constructors."""
    for owner in CLASSES:
        for name in dir(owner):
            function = inspect.getattr_static(owner, name)
            if inspect.isfunction(function) and hasattr(function, "__wrapped__"):
                for parameter in inspect.signature(function).parameters:
                    if parameter != "self":
                        yield owner, name, parameter


def test_every_public_method_looks_at_its_arguments() -> None:
    unchecked = {
        f"{owner.__module__}.{name}"
        for owner in CLASSES
        for name in dir(owner)
        if inspect.isfunction(function := inspect.getattr_static(owner, name))
        and not name.startswith("_")
        and not hasattr(function, "__wrapped__")
    }
    assert unchecked == {"regnum_client.producer.producer.send", "regnum_client.sync.producer.send"}
    # Annotations that cannot be read would be noticed by the first caller only.
    for owner in CLASSES:
        for name in dir(owner):
            function = inspect.getattr_static(owner, name)
            if inspect.isfunction(function) and hasattr(function, "__wrapped__"):
                _parameters(function.__wrapped__)
    assert len(list(parameters())) > 100


@pytest.mark.parametrize(
    ("call", "naming"),
    [
        (lambda: Consumer(NOWHERE, topics="orders"), "topics"),
        (lambda: regnum_client.sync.Consumer(NOWHERE, topics="orders"), "topics"),
        (lambda: Consumer(NOWHERE, topics=["orders", 1]), "topics[1]"),
        (lambda: Consumer(NOWHERE, group_id=b"g"), "group_id"),
        (lambda: Consumer(NOWHERE, settings={"reset": "earliest"}), "settings"),
        (lambda: Producer(1), "bootstrap"),
        (lambda: Producer(NOWHERE, client_id=None), "client_id"),
        (lambda: Admin(NOWHERE, timeout_s=math.nan), "timeout_s"),
        (lambda: Admin(NOWHERE, timeout_s=-1), "timeout_s"),
        (lambda: Admin(NOWHERE).delete_topics("abc"), "names"),
        (lambda: Admin(NOWHERE).delete_topics([b"abc"]), "names[0]"),
        (lambda: Admin(NOWHERE).create_topic("t", partitions=True), "partitions"),
        (lambda: Consumer(NOWHERE).assign("t", partitions="01"), "partitions"),
        (lambda: Consumer(NOWHERE).assign("t", start="erliest"), "start"),
        (lambda: Consumer(NOWHERE).assign("t", start=-1), "start"),
        (lambda: Consumer(NOWHERE).assign("t", start=AtTime("today")), "start.timestamp_ms"),
        (lambda: Consumer(NOWHERE).subscribe(["t"]), "topics"),
        (lambda: Consumer(NOWHERE).read(records_max=0), "records_max"),
        (lambda: Consumer(NOWHERE).seek(regnum_client.TopicPartition("t", 0), -1), "offset"),
        (lambda: Consumer(NOWHERE).pause(regnum_client.TopicPartition("t", "0")), "partitions.partition"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_arguments_are_refused_where_they_are_given(call: Callable[[], object], naming: str) -> None:
    assert refused(call, naming=naming)


@pytest.mark.parametrize(
    "record",
    [
        {"topic": b"t"},
        {"topic": None},
        {"value": "text"},
        {"key": 1},
        {"partition": True},
        {"partition": -1},
        {"partition": "0"},
        {"headers": "ab"},
        {"headers": [("a", "text")]},
        {"headers": {"a": b"b"}},
        {"timestamp_ms": 1.5},
        {"timestamp_ms": -1},
        {"timestamp_ms": 2**63},
    ],
    ids=str,
)
async def test_what_can_be_no_record_is_refused_by_send(record: dict[str, Any], opened: Producer) -> None:
    with pytest.raises(RegnumError) as caught:
        await opened.send(**{"topic": "t", "value": b"x", **record})
    assert caught.value.code == errors_pb2.ERROR_CODE_INVALID_CONFIG
    assert next(iter(record)) in caught.value.message


class Opened(Producer):
    """One that has no cluster, and is open all the same."""

    def _open(self) -> Any:
        return None


@pytest.fixture
def opened() -> Producer:
    return Opened(NOWHERE)


def test_bounds_by_name_hold_for_every_method() -> None:
    @checked
    def wait(times: tuple[int, ...] = (), *more: str, **others: float) -> None:
        """Nothing."""

    wait((1, 2), "a", b=1)
    for args, kwargs in ((((1, "2"),), {}), (((), "a", 1), {}), (((),), {"b": "1"}), (("12",), {})):
        with pytest.raises(RegnumError):
            wait(*args, **kwargs)
    assert words(tuple[int, ...]) == "a tuple of whole number"
    assert Between(1, 5).words == "at least 1 and at most 5"


def test_what_is_plain_is_looked_at_as_well() -> None:
    @partial(checked, bounds={"timeout_s": Between(0)})
    def wait(where: regnum_client.TopicPartition, timeout_s: int | None = None) -> int:
        return where.partition

    place = regnum_client.TopicPartition("t", 1)
    assert wait(place, None) == wait(place, 5) == wait(where=place) == 1
    for given in ((place, -1), (place, True), (regnum_client.TopicPartition("t", "1"),), (("t", 1),)):
        with pytest.raises(RegnumError):
            wait(*given)
