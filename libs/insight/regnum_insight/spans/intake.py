"""All spans of a folder, each once, grouped by trace; what could not be read is counted and kept with its reason.

Memory is what the spans of changes take: a span is held packed (some 200 bytes) until its trace is looked at, and of
others than changes nothing is held but what a change could need.
"""

import marshal
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from regnum_insight.spans.documents import Torn, documents_of
from regnum_insight.spans.otlp import Process, Refused, Selection, is_request, spans_of
from regnum_insight.spans.span import Span

ASIDE_KEPT_MAX: Final = 10_000
"""Of what was set aside so much is kept; all of it is counted."""


@dataclass(frozen=True, slots=True)
class Aside:
    """Something that was set aside."""

    file: str
    """Name of the file."""
    reason: str
    """Why."""
    text: str
    """Its beginning."""


@dataclass(slots=True)
class Intake:
    """What was read."""

    files_n: int = 0
    """Files that were opened."""
    files_empty: list[str] = field(default_factory=list)
    """Files with something in them and no span."""
    spans_n: int = 0
    """Spans, repeated ones included."""
    documents_torn_n: int = 0
    """Documents that are none."""
    documents_foreign_n: int = 0
    """Documents without spans: metrics, logs, anything."""
    spans_refused_n: int = 0
    """Spans that were given up."""
    aside: list[Aside] = field(default_factory=list)
    """The first of what was set aside."""
    processes: set[Process] = field(default_factory=set)
    """What wrote it."""
    trace_of: Callable[[Span], str] = lambda span: span.trace_id
    """Says of a span to which trace it belongs."""
    _traces: dict[bytes, list[bytes]] = field(default_factory=lambda: defaultdict(list))

    def set_aside(self, file: str, reason: str, text: str) -> None:
        """Keep what could not be read."""
        if len(self.aside) < ASIDE_KEPT_MAX:
            self.aside.append(Aside(file, reason, text))

    def take(self, span: Span) -> None:
        """Keep a span."""
        self._traces[bytes.fromhex(self.trace_of(span))].append(marshal.dumps(cast("Any", span[1:])))

    def traces(self) -> Iterator[list[Span]]:
        """The spans of each trace, each once, in the order of ids; a trace is let go of when the next is asked for."""
        for trace in sorted(self._traces):
            trace_id = trace.hex()
            spans: dict[str, Span] = {}
            # Sorted: of two that differ under one id the same one counts, whatever the order of files.
            for one in sorted(self._traces.pop(trace)):
                span = Span(trace_id, *marshal.loads(one))  # noqa: S302 - packed by ``take``
                spans.setdefault(span.span_id, span)
            yield [spans[key] for key in sorted(spans)]


def read_folder(
    folder: Path,
    selection: Selection,
    *,
    trace_of: Callable[[Span], str] = lambda span: span.trace_id,
    progress: Callable[[str], None] = lambda _: None,
) -> Intake:
    """Read all files of a folder, or one file; ``selection`` says what is held of it.

    A file that cannot be read is set aside as a whole and ends nothing. Raises FileNotFoundError without any file.
    """
    intake = Intake(trace_of=trace_of)
    if not folder.exists():
        raise FileNotFoundError(f"there is no {folder}")
    files = sorted(_files(folder))
    if not files:
        raise FileNotFoundError(f"there is no file in {folder}")
    for file in files:
        progress(file.name)
        intake.files_n += 1
        _read(file, selection, intake)
    return intake


def _files(folder: Path) -> Iterable[Path]:
    if folder.is_file():
        return [folder]
    return [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]


def _read(file: Path, selection: Selection, intake: Intake) -> None:
    found = 0
    something = False
    try:
        for document in documents_of(file):
            something = True
            if isinstance(document, Torn):
                intake.documents_torn_n += 1
                intake.set_aside(file.name, document.reason, document.text)
                continue
            if not is_request(document):
                intake.documents_foreign_n += 1
                continue
            for span in spans_of(document, selection, intake.processes):
                if type(span) is Span:
                    found += 1
                    intake.take(span)
                elif isinstance(span, Refused):
                    intake.spans_refused_n += 1
                    intake.set_aside(file.name, span.reason, span.about)
                else:
                    found += 1
    except OSError as error:
        intake.set_aside(file.name, f"the file cannot be read: {error.strerror or error}", "")
    intake.spans_n += found
    if something and not found:
        intake.files_empty.append(file.name)
