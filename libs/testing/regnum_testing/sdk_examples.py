"""The examples in the docstrings of the SDK's public classes."""

import asyncio
import doctest
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import regnum_client
import regnum_client.sync

from regnum_testing.waiting import DEADLINE_S

_PUBLIC: Final = {name: getattr(regnum_client, name) for name in regnum_client.__all__}
_SYNC: Final = {f"sync.{name}": getattr(regnum_client.sync, name) for name in regnum_client.sync.__all__}


def examples(names: Mapping[str, object]) -> Iterator[doctest.DocTest]:
    """Those of every class, some of them empty; ``names`` are known in them."""
    parser = doctest.DocTestParser()
    for name, kind in {**_PUBLIC, **_SYNC}.items():
        if inspect.isclass(kind):
            yield parser.get_doctest(inspect.getdoc(kind) or "", dict(names), name, inspect.getsourcefile(kind), None)


def run_examples(bootstrap: str) -> list[str]:
    """Run all against a fresh cluster; what did not do as it says, with the report of doctest."""
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    with regnum_client.sync.Admin(bootstrap) as admin, regnum_client.sync.Producer(bootstrap) as producer:
        for topic in ("greetings", "orders"):
            admin.create_topic(topic)
        for value in (b"first", b"second"):
            producer.send("orders", value)
        producer.flush(timeout_s=DEADLINE_S)
        known = {"asyncio": asyncio, "regnum_client": regnum_client, "bootstrap": bootstrap, "admin": admin}
        known |= {"Iterable": Iterable, "Sequence": Sequence, "Path": Path, "json": json}
        for example in examples({**_PUBLIC, **known}):
            runner.run(example, out=said.append)
    return said
