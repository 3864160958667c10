"""Every measured figure of README.md and docs/performance.md is in a result that its line links to."""

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[3]
CODE: Final = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
FIGURE: Final = re.compile(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?) (s|ms|MB/s)(?!\w)")
RESULT: Final = re.compile(r"\((?:\.\./)*(bench/results/[\w-]+\.json)\)")
UNIT_OF: Final = {"s": "_s", "ms": "_ms", "MB/s": "_mb_s"}
"""How names of figures of that unit end."""
SESSION: Final = re.compile(r"session time-out (\d+) s")
"""A setting of the peer that the README names; the results have it, too."""


def values(result: dict[str, Any], unit: str) -> Iterator[float]:
    """All values of that unit, of both sides."""
    for side in (result, result.get("beside") or {}):
        for name, figure in side.get("figures", {}).items():
            is_rate = name.endswith("_mb_s")
            if name.endswith(UNIT_OF[unit]) and is_rate == (unit == "MB/s"):
                yield from (figure["median"], *figure["values"])


def unmeasured(text: str, root: Path) -> list[str]:
    """Figures of a page that none of the results of their line has."""
    wrong = []
    for line in SESSION.sub("", CODE.sub("", text)).splitlines():
        results = [json.loads((root / path).read_text(encoding="utf-8")) for path in RESULT.findall(line)]
        for figure, unit in FIGURE.findall(line):
            said = Decimal(figure.replace(",", ""))
            found = (Decimal(str(value)) for result in results for value in values(result, unit))
            if not any(abs(value - said) <= Decimal(1).scaleb(int(said.as_tuple().exponent)) / 2 for value in found):
                wrong.append(f"{figure} {unit}")
    return wrong


@pytest.mark.parametrize("page", ["README.md", "docs/performance.md"])
def test_every_figure_was_measured(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert len(FIGURE.findall(CODE.sub("", text))) >= 10
    assert unmeasured(text, ROOT) == []


def test_sessions_of_the_peer_are_those_that_the_readme_names() -> None:
    """A line that names none has Kafka's default, which the sentence above the table has."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "(ZooKeeper mode, session time-out 18 s, its default)" in text
    for line in text.splitlines():
        for path in re.findall(r"\((bench/results/[\w-]*kafka[\w-]*\.json)\)", line):
            figures = json.loads((ROOT / path).read_text(encoding="utf-8"))["beside"]["figures"]
            named = SESSION.findall(line) or ["18"]
            assert figures["session_ms"]["median"] == float(named[0]) * 1000, path


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("1.42 s ([a](bench/results/a.json))", []),
        ("1.4 s and 50 ms ([a](bench/results/a.json))", []),
        ("1.43 s ([a](bench/results/a.json))", ["1.43 s"]),
        ("50 s, where ms were measured ([a](bench/results/a.json))", ["50 s"]),
        ("30 MB/s of the peer ([a](bench/results/a.json))", []),
        ("1.42 s, of no result", ["1.42 s"]),
        ("`1.42 s` of code; 15,000 partitions", []),
    ],
)
def test_a_figure_that_was_not_measured_is_found(line: str, wrong: list[str], tmp_path: Path) -> None:
    (tmp_path / "bench/results").mkdir(parents=True)
    ours = {"from_kill_s": {"median": 1.42429, "values": [1.5]}, "wait_ms": {"median": 50.0, "values": []}}
    peer = {"produce_mb_s": {"median": 30.0, "values": [30.0]}}
    (tmp_path / "bench/results/a.json").write_text(json.dumps({"figures": ours, "beside": {"figures": peer}}))
    assert unmeasured(line, tmp_path) == wrong
