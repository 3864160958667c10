"""One cluster with a Kafka listener for all tests that do not mind what others do there."""

from collections.abc import Iterator

import pytest
from regnum_testing.kafka_world import KafkaWorld, kafka_world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaWorld]:
    with kafka_world(tmp_path_factory.mktemp("kafka")) as world:
        yield world
