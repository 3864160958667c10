"""Ten figures that speak for a series, beside those of the last release and of another program.

What ``make bench`` shows at its end. The figures of the last release lie in ``bench/released.json``, one object: the
release, the moment, the machine, and by result and figure the median. ``regnum-bench ten --release`` writes it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from rich.table import Table

from regnum_bench.figures import rounded, unit
from regnum_bench.result import Result, ResultError
from regnum_bench.tables import number


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """One of the ten."""

    work: str
    """What is measured, in words."""
    benchmark: str
    """Which benchmark measures it, on etcd."""
    figure: str
    """Its figure."""

    @property
    def result(self) -> str:
        """Name of the result that has it."""
        return f"{self.benchmark}-etcd"


TEN: Final = (
    Headline(work="new leaders known after kill -9 of a broker", benchmark="failover", figure="from_kill_s"),
    Headline(work="client's longest wait after kill -9", benchmark="outage", figure="gap_s"),
    Headline(work="next controller known after kill -9", benchmark="succession", figure="from_kill_s"),
    Headline(
        work="topics created, leaders known",
        benchmark="storm",
        figure="create_all_leaders_on_all_brokers_s",
    ),
    Headline(work="partitions loaded by a controller", benchmark="load", figure="load_s"),
    Headline(work="leader change, at the last broker", benchmark="propagate", figure="change_p50_ms"),
    Headline(work="producing, 3 replicas, acks=all", benchmark="traffic", figure="produce_mb_s"),
    Headline(work="reading, one consumer", benchmark="traffic", figure="consume_mb_s"),
    Headline(work="single records acknowledged, p99", benchmark="singles", figure="ack_p99_ms"),
    Headline(work="broker started after kill -9", benchmark="start", figure="killed_start_s"),
)
"""Those of docs/performance.md, at the size of the series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """How another program is asked for the same work."""

    words: str
    """Behind its command; fields of the shape in braces."""
    pairs: Mapping[str, str] = field(default_factory=dict)
    """Figures that have another name there: ours -> theirs."""


_SAME: Final = "--brokers {brokers} --partitions {partitions} --rf {replication_factor}"
PEERS: Final[Mapping[str, Peer]] = {
    "failover": Peer(words=f"failover {_SAME} --partitions-total {{partitions_total}}"),
    "succession": Peer(words=f"succession {_SAME} --partitions-total {{partitions_total}}"),
    "storm": Peer(words=f"storm {_SAME} --topics {{topics}}"),
    "outage": Peer(
        words="outage --brokers {brokers} --partitions {loaded} --partitions-total {loaded} --rf {replication_factor} "
        "--kills {kills}",
        pairs={"gap_s": "gap_p50_s"},
    ),
    "traffic": Peer(
        words="perf --brokers {brokers} --records {records} --size {size} --batch-size {batch_bytes}",
        pairs={"produce_mb_s": "produce_rf3_mb_s", "consume_mb_s": "consume_rf3_mb_s"},
    ),
}
"""By benchmark; of the others no peer is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """The figures of the last release."""

    release: str
    """Its version."""
    at: str
    """When the last of them was measured, UTC."""
    machine: Mapping[str, Any]
    """On what (``machine.machine``)."""
    medians: Mapping[str, Mapping[str, float]]
    """By name of result and figure."""

    @classmethod
    def of(cls, results: Sequence[Result], release: str) -> Self:
        """Of a series. Raises ResultError: one of the ten is not there, or its run was void."""
        by_name = {result.name: result for result in results}
        medians: dict[str, dict[str, float]] = {}
        for one in TEN:
            result = by_name.get(one.result)
            if result is None or one.figure not in result.figures:
                raise ResultError(f"no {one.figure} of {one.result}: run the whole series first (make bench)")
            if result.void:
                raise ResultError(f"{one.result} is void ({result.void[0]}): run it again on a quiet machine")
            medians.setdefault(one.result, {})[one.figure] = rounded(result.figures[one.figure].median)
        last = max((by_name[one.result] for one in TEN), key=lambda result: result.at)
        return cls(release=release, at=last.at, machine=last.machine, medians=medians)

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """None: there is no file. Raises ResultError."""
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                release=str(value["release"]),
                at=str(value["at"]),
                machine=dict(value["machine"]),
                medians={name: dict(figures) for name, figures in value["medians"].items()},
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ResultError(f"{path} has no figures of a release: {error!r}") from error

    def to_text(self) -> str:
        """The file."""
        value = {"release": self.release, "at": self.at, "machine": dict(self.machine), "medians": dict(self.medians)}
        return json.dumps(value, indent=2) + "\n"


def ten_table(results: Sequence[Result], released: Released | None) -> Table:
    """A row for each of the ten; "-" where a series, or a release, does not have it."""
    table = Table(title="Ten figures, at the size of this series", title_justify="left", caption_justify="left")
    beside = any(result.beside is not None for result in results)
    for heading in ("work", "", "now", *((released.release, "now / then") if released else ())):
        table.add_column(heading, justify="left" if heading in {"work", ""} else "right")
    for heading in ("peer", "ours / peer") if beside else ():
        table.add_column(heading, justify="right")
    for row in _rows(results, released):
        table.add_row(*row[: len(table.columns) - 2 * beside], *(row[-2:] if beside else ()))
    table.caption = "\n".join(remarks(results, released))
    return table


def _rows(results: Sequence[Result], released: Released | None) -> Iterator[tuple[str, ...]]:
    """Work, unit, now, then, ratio, peer, ratio."""
    by_name = {result.name: result for result in results}
    for one in TEN:
        result = by_name.get(one.result)
        spread = None if result is None else result.figures.get(one.figure)
        then = released.medians.get(one.result, {}).get(one.figure) if released else None
        now = "-" if spread is None else number(spread.median) + (" (void)" if result and result.void else "")
        ratio = result.beside.ratios.get(one.figure) if result and result.beside else None
        yield (
            one.work,
            unit(one.figure),
            now,
            "-" if then is None else number(then),
            "-" if spread is None or not then else f"{spread.median / then:.2f}",
            "-" if spread is None or not ratio else number(spread.median / ratio),
            "-" if not ratio else f"{ratio:.2f}",
        )


def remarks(results: Sequence[Result], released: Released | None) -> Iterator[str]:
    """What has to be known about the columns."""
    if released is None:
        yield "no figures of a release yet: make bench-release writes them"
    elif any(result.machine.get(name) != released.machine.get(name) for result in results for name in ("cpus", "cpu")):
        yield f"the figures of {released.release} are of another machine, or of another host: a ratio says little"
    commands = {result.beside.command[0]: None for result in results if result.beside}
    if commands:
        yield f"peer: {', '.join(commands)}, at the same work in the same run"
