"""All spans of a folder, each once, grouped by trace; what could not be read is counted and kept with its reason.

Memory is what the spans of changes take: a span is held packed until its trace is looked at, and of others than
changes nothing is held but what a change could need.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from regnum_insight.spans.documents import Torn, documents_of
from regnum_insight.spans.otlp import Process, Refused, Selection, is_request, spans_of
from regnum_insight.spans.packing import Waiting
from regnum_insight.spans.span import Span

ASIDE_KEPT_MAX: Final = 10_000
"""Of what was set aside so much is kept; all of it is counted."""
SUFFIX: Final = ".jsonl"
"""End of the names of files that processes of this product write."""


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
class Tally:
    """What was read, in numbers, and what was set aside."""

    files_n: int = 0
    """Files that were opened."""
    files_unread_n: int = 0
    """Those among them that could not be read at all."""
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

    def set_aside(self, file: str, reason: str, text: str) -> None:
        """Keep what could not be read."""
        if len(self.aside) < ASIDE_KEPT_MAX:
            self.aside.append(Aside(file, reason, text))

    def add(self, other: "Tally") -> None:
        """Count what was read elsewhere."""
        self.files_n += other.files_n
        self.files_unread_n += other.files_unread_n
        self.files_empty += other.files_empty
        self.spans_n += other.spans_n
        self.documents_torn_n += other.documents_torn_n
        self.documents_foreign_n += other.documents_foreign_n
        self.spans_refused_n += other.spans_refused_n
        self.aside += other.aside[: ASIDE_KEPT_MAX - len(self.aside)]
        self.processes |= other.processes


@dataclass(slots=True)
class Intake(Tally):
    """The same, with the spans."""

    trace_of: Callable[[Span], str] = lambda span: span.trace_id
    """Says of a span to which trace it belongs."""
    _waiting: Waiting = field(default_factory=Waiting)

    def tally(self) -> Tally:
        """The numbers alone."""
        tally = Tally()
        tally.add(self)
        return tally

    def take(self, spans: Iterable[Span]) -> None:
        """Keep the spans of a document."""
        self._waiting.add(spans, self.trace_of)

    def traces(self) -> Iterator[list[Span]]:
        """The spans of each trace, each once, in the order of ids; a trace is let go of when the next is asked for."""
        return self._waiting.traces()


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
    files = files_below(folder)
    if not files:
        raise FileNotFoundError(f"there is no file in {folder}")
    for file in files:
        progress(file.name)
        for spans in spans_by_document(file.name, documents_of(file), selection, intake):
            intake.take(spans)
    return intake


def files_below(folder: Path) -> list[Path]:
    """Files of a folder and of all below it, or the one file; hidden ones only where their names say traces."""
    if folder.is_file():
        return [folder]
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and (path.name[0] != "." or path.suffix == SUFFIX)
    )


def spans_in(file: str, documents: Iterator[object], selection: Selection, tally: Tally) -> Iterator[Span]:
    """The spans of one file that are wanted; everything else about it is counted.

    A file that cannot be read is set aside as a whole and ends nothing.
    """
    for spans in spans_by_document(file, documents, selection, tally):
        yield from spans


def spans_by_document(
    file: str, documents: Iterator[object], selection: Selection, tally: Tally
) -> Iterator[Sequence[Span]]:
    """The same, those of each document together."""
    found = 0
    something = False
    tally.files_n += 1
    try:
        for document in documents:
            something = True
            if isinstance(document, Torn):
                tally.documents_torn_n += 1
                tally.set_aside(file, document.reason, document.text)
                continue
            spans = spans_of(document, selection, tally.processes)
            if not spans and not is_request(document):
                tally.documents_foreign_n += 1
                continue
            wanted = [span for span in spans if type(span) is Span]
            if len(wanted) < len(spans):
                refused = [span for span in spans if type(span) is Refused]
                tally.spans_refused_n += len(refused)
                for span in refused:
                    tally.set_aside(file, span.reason, span.about)
                found -= len(refused)
            found += len(spans)
            if wanted:
                yield wanted
    except OSError as error:
        tally.files_unread_n += not something
        tally.set_aside(file, f"the file cannot be read: {error.strerror or error}", "")
    tally.spans_n += found
    if something and not found:
        tally.files_empty.append(file)
