"""What CreateTopics tells of the settings that came of it (KIP-525)."""

from types import SimpleNamespace
from typing import Any

import pytest
from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_broker.kafka.admin import Admin
from regnum_broker.kafka.context import Context
from regnum_kafka_wire.gen.create_topics_request import CreatableTopic, CreateTopicsRequest
from regnum_kafka_wire.gen.create_topics_response import CreatableTopicResult
from regnum_service.errors import RegnumError
from regnum_service.limits.call import Call

HIDDEN = errors_pb2.ERROR_CODE_TOPIC_AUTHORIZATION_FAILED
NOT_AVAILABLE = errors_pb2.ERROR_CODE_BROKER_NOT_AVAILABLE


class Controller:
    """Makes what it is asked for, but for ``refused``, and tells settings of all but ``secret``."""

    def __init__(self, *, gone: bool = False) -> None:
        self.described: list[list[str]] = []
        self._gone = gone

    def check_gate(self) -> None:
        """It is this broker."""

    def new_mutation_id(self) -> str:
        return "m"

    async def pass_on(self, name: str, request: Any, answer: Any, _context: Any) -> Any:
        told = answer()
        if name == "CreateTopics":
            for topic in request.topics:
                code = errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS if topic.name == "refused" else 0
                told.results.add(name=topic.name, error_code=code, partitions=3, replication_factor=2)
            return told
        self.described.append([one.name for one in request.resources])
        if self._gone:
            raise RegnumError(NOT_AVAILABLE, "no controller")
        for resource in request.resources:
            hidden = resource.name == "secret"
            one = told.results.add(resource=resource, error_code=HIDDEN if hidden else 0)
            if not hidden:
                one.configs.add(name="retention.ms", value="5", source=admin_pb2.CONFIG_SOURCE_TOPIC)
                one.configs.add(name="password", value="", sensitive=True, read_only=True)
        return told


async def _at_once(*_: object) -> bool:
    return True


async def create(controller: Controller, *names: str, version: int = 7, only: bool = False) -> Any:
    nothing: Any = None
    cache: Any = SimpleNamespace(topics={}, until=_at_once)
    creation: Any = SimpleNamespace(defaults=SimpleNamespace(partitions=1))
    towards: Any = controller
    admin = Admin(
        cache=cache, leaders=nothing, addresses=nothing, authorizer=nothing, controller=towards, creation=creation
    )
    topics = [CreatableTopic(name, 3, 2, [], []) for name in names]
    head: Any = SimpleNamespace(version=version)
    context = Context(Call(peer="ipv4:10.0.0.1:1"), head, nothing, nothing)
    answer = await admin.create(CreateTopicsRequest(topics=topics, timeout_ms=0, validate_only=only), context)
    return {one.name: one for one in answer.topics}


def told(result: CreatableTopicResult) -> Any:
    return None if result.configs is None else [(one.name, one.value) for one in result.configs]


async def test_a_topic_that_was_made_comes_with_its_settings() -> None:
    made = (await create(Controller(), "orders"))["orders"]
    assert told(made) == [("retention.ms", "5"), ("password", None)]
    first, second = made.configs
    assert (first.config_source, first.read_only, first.is_sensitive) == (1, False, False)
    assert (second.read_only, second.is_sensitive) == (True, True)
    assert (made.error_code, made.topic_config_error_code, made.num_partitions) == (0, 0, 3)


async def test_settings_of_what_was_refused_are_not_asked_for_and_those_that_a_caller_may_not_see_not_told() -> None:
    controller = Controller()
    made = await create(controller, "refused", "secret", "orders")
    assert controller.described == [["secret", "orders"]]
    assert [(one.error_code, one.topic_config_error_code, told(one) is None) for one in made.values()] == [
        (errors_pb2.ERROR_CODE_TOPIC_ALREADY_EXISTS, 0, True),
        (0, HIDDEN, True),
        (0, 0, False),
    ]


async def test_a_topic_is_made_whether_or_not_its_settings_can_be_told() -> None:
    made = (await create(Controller(gone=True), "orders"))["orders"]
    assert (made.error_code, made.topic_config_error_code, told(made)) == (0, NOT_AVAILABLE, None)


@pytest.mark.parametrize(("version", "only"), [(4, False), (7, True)])
async def test_nothing_is_asked_where_a_client_is_not_told_or_nothing_is_made(version: int, *, only: bool) -> None:
    controller = Controller()
    made = (await create(controller, "orders", version=version, only=only))["orders"]
    assert (controller.described, made.error_code, told(made)) == ([], 0, [])


async def test_of_many_topics_each_thousand_is_one_question() -> None:
    controller = Controller()
    made = await create(controller, *(f"t{number}" for number in range(2_500)))
    assert [len(names) for names in controller.described] == [1_000, 1_000, 500]
    assert all(told(one) for one in made.values())
