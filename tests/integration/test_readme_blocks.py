"""What the README shows from code, as it stands: Python, a client of Kafka, and the call that grpcurl makes."""

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf import json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from regnum_client import sync
from regnum_local.cluster import LocalCluster
from regnum_local.plan import Role
from regnum_service.channel import blocking_channel
from regnum_testing.page_commands import blocks, commands
from regnum_testing.waiting import DEADLINE_S

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

README: Final = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
SDK, KAFKA = blocks(README, "python")


def first_lines(program: str, number: int, environment: dict[str, str]) -> list[str]:
    """What a program prints first, which may go on and on; it is killed then."""
    started = subprocess.Popen(
        [sys.executable, "-u", "-c", program],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    with started as running:
        assert running.stdout is not None
        lines = [running.stdout.readline().rstrip() for _ in range(number)]
        running.kill()
    return lines


def as_grpcurl(line: str, address: str) -> dict[str, Any]:
    """The answer to a call of that command line: names come from reflection, the request from its JSON."""
    words = shlex.split(line)
    service, _, method = words[-1].rpartition("/")
    with blocking_channel(address) as channel:
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        called = pool.FindServiceByName(service).methods_by_name[method]
        request = json_format.ParseDict(json.loads(words[words.index("-d") + 1]), GetMessageClass(called.input_type)())
        call = channel.unary_unary(
            f"/{service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(called.output_type).FromString,
        )
        return json_format.MessageToDict(call(request, timeout=DEADLINE_S))


def play(bootstrap: str, kafka: str) -> dict[str, Any]:
    """All of them, in the order of the page; the topic that the call of grpcurl found."""
    with sync.Admin(bootstrap) as admin:
        admin.create_topic("orders", partitions=3)
    sent, read = first_lines(SDK, 2, {"REGNUM_BOOTSTRAP": bootstrap})
    assert sent == "at offset 0"
    assert re.fullmatch(r"[0-2] 0 b'42 apples'", read), read
    assert first_lines(KAFKA, 1, {"KAFKA": kafka}) == ["at offset 1"], "of the same partition, for it has the same key"
    (line,) = (shown.command for shown in commands(README) if shown.command.startswith("grpcurl "))
    (found,) = as_grpcurl(line, bootstrap)["topics"]
    topic: dict[str, Any] = found["topic"]
    return topic


async def test_blocks_of_code_run_as_they_stand(tmp_path: Path) -> None:
    at_once = {Role.BROKER: ("--group-initial-rebalance-delay-ms", "0")}
    async with LocalCluster(
        tmp_path, brokers=1, elections=1, metadata=1, report=lambda _text: None, extra=at_once
    ) as cluster:
        topic = await asyncio.to_thread(play, ",".join(cluster.bootstrap), ",".join(cluster.plan.kafka))
    assert (topic["name"], len(topic["partitions"])) == ("orders", 3)
