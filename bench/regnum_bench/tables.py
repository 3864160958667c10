"""Results for people: a table for the terminal, and Markdown for a page of the documentation.

In a page the figures stand between comments: what speaks for each benchmark between SHORT and END_SHORT, every figure
between BEGIN and END. What is between them is replaced as a whole.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from regnum_bench.figures import HIGHER_IS_BETTER, UNITS, Spread, unit
from regnum_bench.result import Result, ResultError, load

BEGIN: Final = "<!-- figures: regnum-bench table -->"
END: Final = "<!-- end of figures -->"
SHORT: Final = "<!-- in short: regnum-bench table -->"
END_SHORT: Final = "<!-- end of in short -->"
_WORDS: Final = {
    "brokers": "brokers",
    "affected": "affected",
    "with_controller": "controller too",
    "rate": "calls/s offered",
    "kills": "kills",
    "loaded": "written to",
    "changes": "changes",
    "records": "records",
    "size": "bytes each",
    "batch_bytes": "bytes a batch",
}
"""Fields of a shape, as tables call them."""


def read_folder(folder: Path) -> list[Result]:
    """All results of a folder, by name. Raises ResultError."""
    return [load(path) for path in sorted(folder.glob("*.json"))]


def with_figures(page: str, results: Sequence[Result], headlines: Mapping[str, Sequence[str]]) -> str:
    """The page with these figures instead of its own. Raises ResultError when it has no place for them.

    Args:
        page: Markdown.
        results: what there is.
        headlines: by benchmark the figures that speak for it.
    """
    everything = f"<details><summary>Every figure</summary>\n\n{markdown(results)}\n</details>\n"
    return _between(_between(page, SHORT, short(results, headlines), END_SHORT), BEGIN, everything, END)


def _between(page: str, begin: str, text: str, end: str) -> str:
    before, found, rest = page.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found and found_end):
        raise ResultError(f"the page has no place for figures: put {begin} and {end} on lines of their own")
    return f"{before}{begin}\n\n{text}\n{end}{after}"


def short(results: Sequence[Result], headlines: Mapping[str, Sequence[str]]) -> str:
    """The first two figures that speak for each benchmark; the worst value and not the range, and where to look."""
    lines = ["| what | shape | figure | median | worst | values | beside | ratio |"]
    lines.append("|---|---|---|---:|---:|---:|---:|---:|")
    for result in results:
        # Plain numbers say what was done, not how well.
        wanted = [name for name in headlines.get(result.benchmark, ()) if name in result.figures and _measures(name)]
        for name in [] if result.growth else wanted[:2]:
            spread = result.figures[name]
            # By the ratio, because the peer may have another name for it.
            ratio = None if result.beside is None else result.beside.ratios.get(name)
            cells = (
                f"[{result.name}]({result.name}.svg)",
                what(result.shape),
                f"{name} ({unit(name)})" if unit(name) else name,
                number(spread.median),
                number(spread.least if name.endswith(HIGHER_IS_BETTER) else spread.most),
                str(len(spread.values)) + (" (void)" if result.void else ""),
                number(spread.median / ratio) if ratio else "",
                _ratio(ratio),
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _measures(name: str) -> bool:
    return name.endswith(tuple(UNITS))


def figures_table(result: Result) -> Table:
    """One row for each figure; with a peer its median and the ratio."""
    table = Table(
        title=f"{result.benchmark} on {result.shape['coordination']}: {what(result.shape)}",
        title_justify="left",
        caption=f"{len(next(iter(result.figures.values())).values)} values, in {result.duration_s:.0f} s",
        caption_justify="left",
    )
    beside = result.beside
    table.add_column("figure")
    for heading in ("median", "min", "max", *(("beside", "ours / beside") if beside is not None else ())):
        table.add_column(heading, justify="right")
    for name, spread in result.figures.items():
        row = [name, number(spread.median), number(spread.least), number(spread.most)]
        if beside is not None:
            theirs = beside.figures.get(name)
            row += ["" if theirs is None else number(theirs.median), _ratio(beside.ratios.get(name))]
        table.add_row(*row)
    for name, spread in () if beside is None else beside.figures.items():
        if name not in result.figures:
            table.add_row(f"{name} (beside)", "", "", "", number(spread.median), "")
    return table


def markdown(results: Sequence[Result]) -> str:
    """Two tables, figures and growth, and what they were measured on."""
    if not results:
        return "No results yet.\n"
    lines = ["| benchmark | store | shape | figure | median | min | max | values | beside | ratio |"]
    lines.append("|---|---|---|---|---:|---:|---:|---:|---:|---:|")
    for result in results:
        if not result.growth:
            lines += [_row(result, name, spread) for name, spread in result.figures.items()]
    grown = [result for result in results if result.growth]
    if grown:
        lines += ["", "| benchmark | store | figure | over | sizes | medians | slope | at the end | verdict |"]
        lines.append("|---|---|---|---|---|---|---:|---:|---|")
    for result in grown:
        for one in result.growth:
            sizes = ", ".join(f"{size:,.0f}" for size in one.sizes)
            medians = ", ".join(number(median) for median in one.medians)
            cells = (result.benchmark, result.shape["coordination"], one.figure, one.size, sizes, medians)
            lines.append(f"| {' | '.join(cells)} | {one.slope:.2f} | {one.last_slope:.2f} | {one.verdict} |")
    lines += ["", *dict.fromkeys(_measured_on(result) for result in results)]
    return "\n".join(lines) + "\n"


def what(shape: Mapping[str, Any]) -> str:
    """The work, in words: of the shape what the benchmark reads."""
    words = [f"{shape[name]:,} {label}" for name, label in _WORDS.items() if shape.get(name)]
    if "topics" in shape:
        words.insert(1, f"{shape['topics']:,} x {shape['partitions']:,} partitions, RF {shape['replication_factor']}")
    return ", ".join(words)


def number(value: float) -> str:
    """Three digits that mean something, and thousands apart."""
    if value >= 1_000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 1 else f"{value:.4g}"


def _row(result: Result, name: str, spread: Spread) -> str:
    beside = result.beside
    theirs = None if beside is None else beside.figures.get(name)
    cells = (
        result.benchmark,
        str(result.shape["coordination"]),
        what(result.shape),
        f"{name} ({unit(name)})" if unit(name) else name,
        number(spread.median),
        number(spread.least),
        number(spread.most),
        str(len(spread.values)),
        "" if theirs is None else number(theirs.median),
        "" if beside is None else _ratio(beside.ratios.get(name)),
    )
    return f"| {' | '.join(cells)} |"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _measured_on(result: Result) -> str:
    machine, commit = result.machine, result.commit
    changed = ", with changes" if commit.get("dirty") else ""
    load = result.load_average.get("before", [0.0])[0]
    return (
        f"- `{result.name}`: commit {commit.get('id')}{changed}, {result.at}, {machine.get('cpus')} processors "
        f"({machine.get('cpu')}), {machine.get('kernel')}, Python {machine.get('python')}, load before {load:g}, "
        f"{result.duration_s:.0f} s: `{result.command}`"
    )
