"""One result as it lies in a file: what was measured, on what, how, and every value. Pure but for load and save."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from regnum_bench.figures import Spread, ratios
from regnum_bench.growth import Growth

SCHEMA: Final = 1


class ResultError(ValueError):
    """A file that is no result of ours. The message says what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """The figures of another program at the same shape in the same run."""

    command: tuple[str, ...]
    """What was run."""
    figures: Mapping[str, Spread]
    """Its figures."""
    pass_s: tuple[float, ...]
    """How long each run of it took, in seconds: what a virtual machine had to become warm in."""
    ratios: Mapping[str, float]
    """Ours to theirs, by our name."""
    said: Mapping[str, Any] = field(default_factory=dict)
    """What else it printed: versions, settings."""

    def to_json(self) -> dict[str, Any]:
        """For the file."""
        return {
            "command": list(self.command),
            "figures": {name: spread.to_json() for name, spread in self.figures.items()},
            "pass_s": [round(seconds, 2) for seconds in self.pass_s],
            "ratios": dict(self.ratios),
            "said": dict(self.said),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one run of one benchmark found."""

    benchmark: str
    """Its name."""
    label: str = ""
    """Tells it from others of the same benchmark and store; may be empty."""
    shape: Mapping[str, Any]
    """Fields of the shape."""
    figures: Mapping[str, Spread]
    """Ours, by name."""
    notes: tuple[str, ...] = ()
    """What a reader must know: what a figure leaves out."""
    complaints: tuple[str, ...] = ()
    """What is wrong: a limit that is not kept, a record that was lost."""
    void: tuple[str, ...] = ()
    """Why the figures say nothing, though nothing is wrong; empty: they count."""
    pass_s: tuple[float, ...] = ()
    """How long each pass took, in seconds."""
    beside: Beside | None = None
    """The peer, if there was one."""
    growth: tuple[Growth, ...] = ()
    """How figures grow, where sizes were swept; the figures are then those of the largest size."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What a benchmark has besides."""
    command: str = ""
    """The command line."""
    machine: Mapping[str, Any] = field(default_factory=dict)
    """See ``machine.machine``."""
    commit: Mapping[str, Any] = field(default_factory=dict)
    """See ``machine.commit``."""
    at: str = ""
    """When it began, UTC."""
    duration_s: float = 0.0
    """All of it, in seconds."""
    load_average: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """``before`` and ``after``: of the last 1, 5 and 15 minutes."""

    @property
    def name(self) -> str:
        """Name of its files, without ending: ``failover-etcd``, ``growth-failover-affected-etcd``."""
        parts = [self.benchmark, str(self.shape["coordination"]), self.label]
        if self.growth:
            parts = ["growth", self.benchmark, self.growth[0].size, *parts[1:]]
        return file_name(*parts).removesuffix(".json")

    def to_json(self) -> dict[str, Any]:
        """For the file."""
        return {
            "schema": SCHEMA,
            "benchmark": self.benchmark,
            "label": self.label,
            "at": self.at,
            "command": self.command,
            "commit": dict(self.commit),
            "machine": dict(self.machine),
            "load_average": {when: list(loads) for when, loads in self.load_average.items()},
            "duration_s": round(self.duration_s, 2),
            "pass_s": [round(seconds, 2) for seconds in self.pass_s],
            "shape": dict(self.shape),
            "figures": {name: spread.to_json() for name, spread in self.figures.items()},
            "notes": list(self.notes),
            "complaints": list(self.complaints),
            "void": list(self.void),
            "beside": None if self.beside is None else self.beside.to_json(),
            "growth": [one.to_json() for one in self.growth],
            "details": dict(self.details),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """From a file; raises ResultError."""
        try:
            if value["schema"] != SCHEMA:
                raise ResultError(f"schema {value['schema']} is not {SCHEMA}")
            return cls(
                benchmark=str(value["benchmark"]),
                label=str(value["label"]),
                shape=dict(value["shape"]),
                figures={name: Spread.from_json(item) for name, item in value["figures"].items()},
                notes=tuple(value["notes"]),
                complaints=tuple(value["complaints"]),
                # Files of before have it among the complaints.
                void=tuple(value.get("void", ())),
                pass_s=tuple(value["pass_s"]),
                beside=None if value["beside"] is None else _beside(value["beside"]),
                growth=tuple(_growth(item) for item in value["growth"]),
                details=dict(value["details"]),
                command=str(value["command"]),
                machine=dict(value["machine"]),
                commit=dict(value["commit"]),
                at=str(value["at"]),
                duration_s=float(value["duration_s"]),
                load_average=dict(value["load_average"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ResultError(f"not a result: {error!r}") from error


def beside(
    ours: Mapping[str, Spread],
    *,
    command: Sequence[str],
    theirs: Mapping[str, Spread],
    pairs: Mapping[str, str],
    pass_s: Sequence[float],
    said: Mapping[str, Any],
) -> Beside:
    """The peer's side with the ratios."""
    return Beside(
        command=tuple(command),
        figures=theirs,
        pass_s=tuple(pass_s),
        ratios=ratios(ours, theirs, pairs),
        said=said,
    )


def joined(earlier: Result, later: Result, complaints: Callable[[Mapping[str, Spread]], Sequence[str]]) -> Result:
    """Two runs of the same, as one with the repetitions of both; ``complaints`` judges all figures together.

    For a run that has to be done in pieces. Raises ResultError when they are not of the same work, machine and code.
    """
    for what, of in (("work", _work_of), ("machine", lambda one: one.machine), ("code", lambda one: one.commit)):
        if of(earlier) != of(later):
            raise ResultError(f"the result in the folder is of another {what}: give another --label")
    if earlier.beside or later.beside or earlier.growth or later.growth:
        raise ResultError("results with a peer, and growth, cannot be joined: run them whole")
    figures = {
        name: Spread(values=(*(earlier.figures[name].values if name in earlier.figures else ()), *spread.values))
        for name, spread in later.figures.items()
    }
    repetitions = int(earlier.shape["repetitions"]) + int(later.shape["repetitions"])
    return replace(
        later,
        shape={**later.shape, "repetitions": repetitions},
        figures=figures,
        notes=tuple(dict.fromkeys((*earlier.notes, *later.notes))),
        complaints=tuple(complaints(figures)),
        void=tuple(dict.fromkeys((*earlier.void, *later.void))),
        pass_s=(*earlier.pass_s, *later.pass_s),
        at=earlier.at,
        duration_s=earlier.duration_s + later.duration_s,
        load_average={
            "before": earlier.load_average.get("before", ()),
            "after": later.load_average.get("after", ()),
        },
    )


def _work_of(result: Result) -> tuple[object, ...]:
    """What was measured, but for how often."""
    shape = {name: value for name, value in result.shape.items() if name != "repetitions"}
    return result.benchmark, result.label, shape


def file_name(*parts: str) -> str:
    """Name of a file of results; parts that are empty are left out."""
    return f"{'-'.join(filter(None, parts))}.json"


def save(result: Result, folder: Path) -> Path:
    """Write the file; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.name}.json"
    path.write_text(json.dumps(result.to_json(), indent=2) + "\n", encoding="utf-8")
    return path


def load(path: Path) -> Result:
    """Read a file; raises ResultError, OSError."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return Result.from_json(value)
    except (ResultError, ValueError) as error:
        raise ResultError(f"{path}: {error}") from error


def _beside(value: Mapping[str, Any]) -> Beside:
    return Beside(
        command=tuple(value["command"]),
        figures={name: Spread.from_json(item) for name, item in value["figures"].items()},
        pass_s=tuple(value["pass_s"]),
        ratios=dict(value["ratios"]),
        said=dict(value["said"]),
    )


def _growth(value: Mapping[str, Any]) -> Growth:
    return Growth(
        figure=str(value["figure"]),
        size=str(value["size"]),
        sizes=tuple(value["sizes"]),
        medians=tuple(value["medians"]),
    )
