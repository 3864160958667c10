"""Data on stdout in the form that was asked for. What renders is loaded when it is needed."""

import codecs
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, assert_never

from regnum_client.cluster import WAITING
from regnum_client.commands.invocation import Failure, Output, note_wait, visible

if TYPE_CHECKING:
    from regnum_client.records import ConsumedRecord

Row = Mapping[str, Any]


ESCAPES: Final = "regnum-escapes"
"""Name of what writes the characters that an encoding lacks."""


def take_any_text(stream: object) -> None:
    r"""Have a stream write any text, whatever its encoding: what that lacks, as JSON escapes it (``\u20ac``).

    Names, keys and values come from others, and the locale is that of a cron job or a container (``LC_ALL=C``).
    """
    codecs.register_error(ESCAPES, _escaped)
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors=ESCAPES)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def emit_rows(rows: Sequence[Row], output: Output, *, columns: Sequence[str], empty: str = "") -> None:
    """A list of things. ``columns`` are the fields of the table; ``empty`` tells people that there is nothing."""
    match output:
        case Output.TABLE:
            if rows:
                _table([[cell_of(row.get(column)) for column in columns] for row in rows], columns)
            elif empty:
                sys.stderr.write(f"{empty}\n")
        case Output.JSON:
            _line(visible(json.dumps(list(rows), indent=2, ensure_ascii=False)))
        case Output.JSONL:
            for row in rows:
                _line(visible(json.dumps(row, ensure_ascii=False)))
        case Output.YAML:
            write_yaml(list(rows))
        case _:
            assert_never(output)


def emit_one(row: Row, output: Output) -> None:
    """One thing: for people, a line for each field."""
    match output:
        case Output.TABLE:
            width = max(len(field) for field in row) + 2
            for field, value in row.items():
                _line(f"{title_of(field):<{width}}{cell_of(value)}")
        case Output.JSON:
            _line(visible(json.dumps(row, indent=2, ensure_ascii=False)))
        case Output.JSONL:
            _line(visible(json.dumps(row, ensure_ascii=False)))
        case Output.YAML:
            write_yaml(row)
        case _:
            assert_never(output)


def emit_failure(failure: Failure, output: Output) -> None:
    """A failure, on stderr."""
    if output is Output.TABLE:
        sys.stderr.write(visible(f"regnum: {failure.message}\n"))
    else:
        sys.stderr.write(visible(json.dumps(failure.as_json(), ensure_ascii=False) + "\n"))


@contextlib.contextmanager
def show_waits() -> Iterator[None]:
    """Meanwhile what the SDK waits for is shown on stderr."""
    import logging  # noqa: PLC0415 - help is to be there at once

    class Shown(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note_wait(record.getMessage())

    logger, shown = logging.getLogger(WAITING), Shown()
    logger.addHandler(shown)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(shown)


class RecordPrinter:
    """Records on stdout, one after another. ``close`` ends the document."""

    def __init__(
        self,
        output: Output,
        *,
        key_separator: str | None,
        render: "Callable[[ConsumedRecord], bytes] | None" = None,
    ) -> None:
        """``render`` makes the bytes of a record in place of what people see by default."""
        self._output = output
        self._render = render
        self._key_separator = None if key_separator is None else os.fsencode(key_separator)
        self._count = 0

    def print(self, record: "ConsumedRecord") -> None:
        """One record; for people its value (and key, when a separator is given) and nothing else."""
        match self._output:
            case Output.TABLE if self._render is not None:
                sys.stdout.buffer.write(self._render(record))
            case Output.TABLE:
                if self._key_separator is not None:
                    _bytes((record.key or b"") + self._key_separator)
                _bytes((record.value or b"") + b"\n")
            case Output.JSON:
                opening = "[\n" if self._count == 0 else ",\n"
                sys.stdout.write(opening + visible(json.dumps(_record(record), ensure_ascii=False)))
            case Output.JSONL:
                _line(visible(json.dumps(_record(record), ensure_ascii=False)))
            case Output.YAML:
                if self._count:
                    _line("---")
                write_yaml(_record(record))
            case _:
                assert_never(self._output)
        self._count += 1

    def flush(self) -> None:
        """Let a reader of a pipe see what was printed."""
        sys.stdout.flush()

    def close(self) -> None:
        """End the document."""
        if self._output is Output.JSON:
            _line("\n]" if self._count else "[]")
        sys.stdout.flush()


def _record(record: "ConsumedRecord") -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **content_of("key", record.key),
        **content_of("value", record.value),
        "headers": [{"key": name, **content_of("value", value)} for name, value in record.headers],
    }


def content_of(name: str, value: bytes | None) -> dict[str, Any]:
    """Bytes as a field of a JSON object: text where they are UTF-8, else base 64 under ``NAME_base64``."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode("utf-8")}
    except UnicodeDecodeError:
        import base64  # noqa: PLC0415

        return {f"{name}_base64": base64.b64encode(value).decode("ascii")}


def title_of(field: str) -> str:
    """A field's name for people."""
    return field.replace("_", " ")


_AS_THEY_ARE: Final = frozenset({str, int})
"""What most cells are: a table may have 100,000, and none of these has to be looked at further."""


def cell_of(value: object) -> str:
    """A value for people, on one line."""
    return visible(_cell_of(value), one_line=True)


def _cell_of(value: object) -> str:
    if type(value) in _AS_THEY_ARE:
        return str(value)
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ",".join(str(item) for item in value) or "-"
        case dict():
            return " ".join(f"{key}={item}" for key, item in value.items()) or "-"
        case _:
            return str(value)


def _table(rows: Sequence[Sequence[str]], columns: Sequence[str]) -> None:
    titles = [title_of(column).upper() for column in columns]
    if sys.stdout.isatty():
        import shutil  # noqa: PLC0415

        from regnum_client.commands.tables import table_lines  # noqa: PLC0415 - most output goes to no terminal

        bold = os.environ.get("TERM") != "dumb"
        for text in table_lines(rows, titles, width=shutil.get_terminal_size().columns, bold=bold):
            _line(text)
        return
    widths = [max(len(line[index]) for line in (titles, *rows)) for index in range(len(titles))]
    for line in (titles, *rows):
        _line("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def write_yaml(value: object) -> None:
    """A YAML document, or items of one, on stdout."""
    # Only YAML itself knows where its escapes mean something.
    encoding = codecs.lookup(getattr(sys.stdout, "encoding", None) or "utf-8").name
    sys.stdout.write(yaml_of(value, allow_unicode=encoding.startswith("utf")))


def yaml_of(value: object, *, allow_unicode: bool = True) -> str:
    """A YAML document, or items of one; without ``allow_unicode`` in ASCII."""
    import yaml  # noqa: PLC0415

    # In C where it is there: ten times as fast.
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(_plain(value), Dumper=dumper, sort_keys=False, allow_unicode=allow_unicode)
    # YAML takes some that a terminal obeys for letters.
    return text if not allow_unicode or visible(text) == text else yaml_of(value, allow_unicode=False)


def _plain(value: object) -> object:
    match value:
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value


def _line(text: str) -> None:
    sys.stdout.write(text + "\n")


def _bytes(content: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
