"""Send a live kill to a real Zipkin and walk the trace that comes back, as its user interface would.

    python -m regnum_testing.zipkin_judge --jar zipkin-server-exec.jar

A leader is killed under load, its trace goes to a Zipkin of this machine as the report writes it, and is asked back.
All spans are there; the root lasts as long as the trace, but for what lies before its beginning; and the critical path,
back in time by the child that finished last, covers the worst outage, with a broker and a client on it.

The jar: ``mvn dependency:copy -Dartifact=io.zipkin:zipkin-server:3.5.1:jar:exec``, or REGNUM_ZIPKIN_JAR names it.
Exit status: 0 all holds or there is no jar or no Java, which is said; 1 something does not hold.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from regnum_insight.attribution.changes import UNTRACED, Change
from regnum_insight.engine import analyse
from regnum_insight.reporting.zipkin import zipkin_of
from regnum_insight.spans.span import Kind, Span
from regnum_local.plan import TRACES
from regnum_telemetry import conventions as names

from regnum_testing.critical_path import covered_ns, critical_path
from regnum_testing.direct_http import opened_directly
from regnum_testing.outages.__main__ import play
from regnum_testing.ports import unused_port

JAR: Final = "REGNUM_ZIPKIN_JAR"
"""Variable that names the jar."""
COVERED_SHARE: Final = 0.95
"""Of the worst outage that lies on the critical path, and of a trace that its root lasts."""
STARTED_S: Final = 180.0
"""Zipkin serves after so long, on a busy machine too."""
POLL_S: Final = 0.5
STEP_S: Final = 30.0
"""For each request."""


def spans_of_zipkin(answer: Sequence[Mapping[str, Any]]) -> list[Span]:
    """Spans of one trace as Zipkin's API answers them: it keeps microseconds, and names in lower case. Pure."""
    return [
        Span(
            trace_id=one["traceId"],
            span_id=one["id"],
            parent_id=one.get("parentId", ""),
            name=one.get("name", ""),
            kind=Kind[one["kind"]] if "kind" in one else Kind.INTERNAL,
            start_ns=one["timestamp"] * 1000,
            end_ns=(one["timestamp"] + one.get("duration", 0)) * 1000,
            process=one["localEndpoint"]["serviceName"],
            attributes=one.get("tags", {}),
        )
        for one in answer
    ]


def complaints(change: Change, sent: Sequence[Span], found: Sequence[Span]) -> Iterator[str]:
    """What does not hold of one change; ``found`` is what came back of what was ``sent``. Pure."""
    if {span.span_id for span in found} != {span.span_id for span in sent}:
        yield f"of {len(sent)} spans {len(found)} came back"
    roots = [span for span in found if not span.parent_id and span.name == names.LEADERSHIP_CHANGE]
    if len(roots) != 1:
        yield f"{len(roots)} roots"
        return
    root, worst = roots[0], change.worst
    last_ns = max(span.end_ns for span in found)
    lasts = (root.end_ns - root.start_ns) / (last_ns - root.start_ns)
    if lasts < COVERED_SHARE:
        yield f"the root lasts {lasts:.1%} of what begins with it"
    path = critical_path(found, root)
    covered = covered_ns(path, worst.start_ns, worst.end_ns) / (worst.end_ns - worst.start_ns)
    if covered < COVERED_SHARE:
        yield f"the critical path covers {covered:.1%} of the worst outage, {worst.outage_ms:.1f} ms"
    processes = {piece.span.process for piece in path}
    if worst.client not in processes or not any(process.startswith("broker ") for process in processes):
        yield f"no broker, or no client, is on the critical path: {sorted(processes)}"


@contextmanager
def zipkin(java: str, jar: Path, folder: Path) -> Iterator[str]:
    """A Zipkin that keeps everything in memory; its address."""
    port = unused_port()
    address = f"http://127.0.0.1:{port}"
    environ = {**os.environ, "QUERY_PORT": str(port), "STORAGE_TYPE": "mem"}
    with (folder / "zipkin.log").open("wb") as log:
        process = subprocess.Popen([java, "-Xmx512m", "-jar", str(jar)], env=environ, stdout=log, stderr=log)
        try:
            deadline_s = time.monotonic() + STARTED_S
            while not _serves(address):
                if process.poll() is not None or time.monotonic() > deadline_s:
                    raise RuntimeError(f"Zipkin does not serve; see {log.name}")
                time.sleep(POLL_S)
            yield address
        finally:
            process.terminate()
            process.wait()


def _serves(address: str) -> bool:
    try:
        with opened_directly(f"{address}/health", timeout=STEP_S) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


def send(address: str, changes: Collection[Change], spans: dict[str, Sequence[Span]]) -> None:
    """Send changes as the report writes them, with their spans by trace id."""
    body = json.dumps(zipkin_of(changes, spans)).encode()
    request = urllib.request.Request(  # noqa: S310 - its own address
        f"{address}/api/v2/spans", data=body, headers={"Content-Type": "application/json"}, method="POST"
    )
    with opened_directly(request, timeout=STEP_S):
        pass


def _sent_and_found(address: str, change: Change, spans: Sequence[Span]) -> list[Span]:
    send(address, [change], {change.trace_id: spans})
    deadline_s = time.monotonic() + STEP_S
    while True:
        # It takes spans before it stores them.
        try:
            with opened_directly(f"{address}/api/v2/trace/{change.trace_id}", timeout=STEP_S) as answer:
                found = spans_of_zipkin(json.load(answer))
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            found = []
        if len(found) >= len(spans) or time.monotonic() > deadline_s:
            return found
        time.sleep(POLL_S)


def judge(address: str, traces: Path) -> list[str]:
    """All that does not hold of the changes of a folder whose clients waited."""
    analysis = analyse(traces)
    judged = [change for change in analysis.changes if change.chains and change.trace_id in analysis.pictured]
    found = [] if judged else ["no change with an outage"]
    for change in judged:
        spans = analysis.pictured[change.trace_id]
        back = _sent_and_found(address, change, spans)
        of = list(complaints(change, spans, back))
        sys.stdout.write(f"{change.kind}: {len(back)} spans, worst {change.worst.outage_ms:.1f} ms: {of or 'holds'}\n")
        found += of
    untraced = sum(change.kind == UNTRACED for change in analysis.changes)
    return found + ([f"{untraced} outages are in no change's trace"] if untraced else [])


def main() -> int:
    """Judge; returns the exit status."""
    parser = argparse.ArgumentParser(prog="regnum_testing.zipkin_judge", description=__doc__)
    parser.add_argument("--jar", type=Path, default=os.environ.get(JAR), help=f"Zipkin's (default: {JAR})")
    parser.add_argument("--traces", type=Path, help="traces of earlier kills, in place of a new one")
    parser.add_argument("--kills", type=int, default=1)
    arguments = parser.parse_args()
    java = shutil.which("java")
    if arguments.jar is None or java is None:
        sys.stdout.write(f"skipped: {'no Java' if java is None else f'no Zipkin: name its jar by --jar or {JAR}'}\n")
        return 0
    folder = Path(tempfile.mkdtemp(prefix="regnum-zipkin-"))
    traces = arguments.traces
    if traces is None:
        asyncio.run(play(["kill"] * arguments.kills, data_dir=folder, partitions=6, interval_s=0.01))
        traces = folder / TRACES
    with zipkin(java, arguments.jar, folder) as address:
        found = judge(address, traces)
    sys.stdout.write("\n".join([*(f"! {one}" for one in found), f"traces and Zipkin's log: {folder}\n"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
