"""Every example in the docstrings of the SDK runs as it stands there, and so does a service without asyncio."""

import asyncio
import doctest
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
import regnum_client
import regnum_client.sync
from regnum_local.cluster import LocalCluster
from regnum_testing.sync_service import echo
from regnum_testing.waiting import DEADLINE_S

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

PUBLIC = {name: getattr(regnum_client, name) for name in regnum_client.__all__}
SYNC = {f"sync.{name}": getattr(regnum_client.sync, name) for name in regnum_client.sync.__all__}
CLASSES = {name: kind for name, kind in {**PUBLIC, **SYNC}.items() if inspect.isclass(kind)}


def examples(globs: dict[str, object]) -> Iterator[doctest.DocTest]:
    parser = doctest.DocTestParser()
    for name, kind in CLASSES.items():
        yield parser.get_doctest(inspect.getdoc(kind) or "", dict(globs), name, inspect.getsourcefile(kind), None)


def run_examples(bootstrap: str) -> list[str]:
    """What did not do as it says, with the report of doctest."""
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    with regnum_client.sync.Admin(bootstrap) as admin, regnum_client.sync.Producer(bootstrap) as producer:
        admin.create_topic("greetings")
        admin.create_topic("orders")
        for value in (b"first", b"second"):
            producer.send("orders", value)
        producer.flush(timeout_s=DEADLINE_S)
        globs = {**PUBLIC, "asyncio": asyncio, "regnum_client": regnum_client, "bootstrap": bootstrap, "admin": admin}
        for example in examples(globs):
            runner.run(example, out=said.append)
    return said


def test_every_public_class_has_an_example() -> None:
    assert len(CLASSES) > 50
    assert [example.name for example in examples({}) if not example.examples] == []


async def test_the_examples_do_what_they_say_and_a_service_does_without_asyncio(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path, brokers=1, elections=1, metadata=1, report=lambda _text: None) as cluster:
        bootstrap = ",".join(cluster.bootstrap)
        said = await asyncio.to_thread(run_examples, bootstrap)
        assert not said, "".join(said)
        lines = [f"line {number}" for number in range(1000)]
        assert await asyncio.to_thread(echo, bootstrap, "echoed", lines) == lines
