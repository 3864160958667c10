"""docs/metrics.md is the definitions, word for word, and code records what is defined and nothing else."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families
from regnum_telemetry.exposition import FOREIGN, Exposition
from regnum_telemetry.instruments import BY_MODULE, INSTRUMENTS, Instrument
from regnum_telemetry.instruments.definition import ALL_SERVICES
from regnum_telemetry.metrics import Metrics
from regnum_testing.made_file import ROOT
from regnum_testing.metrics_page import PAGE, TITLES, page

REGISTRY = ROOT / "libs" / "telemetry" / "regnum_telemetry" / "instruments"
PACKAGE = "regnum_telemetry.instruments"
OF_ALL = {"process"}
"""Modules that code of every service may record."""


def sources(*below: str) -> Iterator[Path]:
    for folder in below:
        yield from (path for path in (ROOT / folder).rglob("*.py") if REGISTRY not in path.parents)


class Source(NamedTuple):
    """What a file has to do with metrics: a file is parsed once, and its tree is not kept."""

    recorded: tuple[tuple[str, str], ...]
    """Each module and constant of the registry that it names."""
    defining: tuple[int, ...]
    """Lines that define a metric."""


@cache
def source(path: Path) -> Source:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return Source(
        recorded=tuple(dict.fromkeys(_recorded(tree))),
        defining=tuple(
            call.lineno
            for call in calls
            if isinstance(call.func, ast.Name) and call.func.id in {"Instrument", "Definitions"}
        ),
    )


def _recorded(tree: ast.Module) -> Iterator[tuple[str, str]]:
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            aliases.update({name.asname or name.name: name.name for name in node.names if name.name in BY_MODULE})
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}."):
            module = (node.module or "").rpartition(".")[2]
            yield from ((module, name.name) for name in node.names if module in BY_MODULE)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            yield aliases[node.value.id], node.attr


def constants(module: str) -> dict[str, Instrument]:
    found = __import__(f"{PACKAGE}.{module}", fromlist=["DEFINED"])
    return {name: value for name, value in vars(found).items() if isinstance(value, Instrument)}


def test_the_page_is_in_step_with_the_definitions() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "run `make proto` (python -m regnum_testing.metrics_page --write)"
    )


def test_every_module_that_defines_metrics_is_shown() -> None:
    assert {path.stem for path in REGISTRY.glob("*.py")} - {"__init__", "definition"} == set(BY_MODULE) == set(TITLES)


def test_every_cell_of_a_table_is_one_cell() -> None:
    assert all("|" not in instrument.meaning + instrument.kafka for instrument in INSTRUMENTS)


@pytest.mark.parametrize("module", BY_MODULE)
def test_whatever_is_defined_is_recorded_somewhere(module: str) -> None:
    named = {name for path in sources("libs", "services") for of, name in source(path).recorded if of == module}
    assert set(constants(module)) - named == set(), "defined, and no code records it"


def test_nothing_is_recorded_that_is_not_defined() -> None:
    for path in sources("libs", "services"):
        for module, name in source(path).recorded:
            assert name in constants(module) or name == "DEFINED", f"{path}: {module}.{name}"


def test_metrics_are_defined_in_the_registry_and_nowhere_else() -> None:
    for path in sources("libs", "services"):
        assert source(path).defining == (), f"{path} defines a metric"


@pytest.mark.parametrize("service", ALL_SERVICES)
def test_a_service_records_its_own_metrics_and_those_of_every_process(service: str) -> None:
    of_others = {
        module for module, defined in BY_MODULE.items() if all(service not in one.services for one in defined)
    } - OF_ALL
    for path in sources(f"services/{service}"):
        assert not {module for module, _ in source(path).recorded} & of_others, path


def test_the_table_of_what_prometheus_itself_shows_is_what_is_there() -> None:
    text, _ = Exposition("regnum-test", "1", Metrics()).render("")
    shown = {sample.name for family in text_string_to_metric_families(text.decode()) for sample in family.samples}
    assert shown == {name for name, _, _ in FOREIGN}
