"""The table of metrics in docs/operations.md is the definitions, word for word."""

from pathlib import Path

from regnum_telemetry.instruments import ALL_SERVICES, INSTRUMENTS, Instrument

PAGE = Path(__file__).parents[3] / "docs" / "operations.md"
HEAD = "| metric | kind | of | labels | meaning |"


def row(instrument: Instrument) -> str:
    services = "all" if instrument.services == ALL_SERVICES else ", ".join(instrument.services)
    labels = ", ".join(f"`{label}`" for label in instrument.labels) or "-"
    return f"| `{instrument.prometheus}` | {instrument.kind.value} | {services} | {labels} | {instrument.description} |"


def test_the_table_is_what_there_is() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    begin = lines.index(HEAD) + 2
    end = next(number for number in range(begin, len(lines)) if not lines[number].startswith("|"))
    wanted = [row(instrument) for instrument in INSTRUMENTS]
    assert lines[begin:end] == wanted, "put these lines there:\n" + "\n".join(wanted)
