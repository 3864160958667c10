"""`python -m regnum_failover TRACES OUT`, or the same arguments after `spark-submit analysis/failover/job.py`."""

import argparse
import io
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from regnum_insight.attribution.changes import Change
from regnum_insight.reporting.text import tables_of
from regnum_insight.spans.intake import Tally

from regnum_failover.objects.address import AddressError, is_bucket
from regnum_failover.objects.store import NoTracesError, StoreError
from regnum_failover.places import Clocks, Opened, Target, Traces, target_of, traces_of
from regnum_failover.report import Report, write_report
from regnum_failover.session import closed_after, open_session
from regnum_failover.traces.listing import store_of
from regnum_failover.traces.options import DAYS, STORE_TIMEOUT_S, topic_of
from regnum_failover.traces.source import records_of, stream_of

Session = Callable[[str], AbstractContextManager[SparkSession]]
"""Opens Spark with a master, and closes it."""
CHECKPOINT_DIR = "_checkpoint"
LATE_S = 15
LATE_OF_A_TOPIC_S = 300
"""Spans come to a topic when the process that publishes them is back."""
NOT_FOUND = 3
"""Exit status when there are no traces, as of the `regnum` command."""
CLOCKS = Clocks(now_s=time.time, monotonic_s=time.monotonic)


def main(
    arguments: Sequence[str] | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
    opened: Opened | None = None,
    clocks: Clocks = CLOCKS,
    session: Session = closed_after,
) -> int:
    """Run the job; returns the exit status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names in a report are what somebody chose, and the locale may be C.
        sys.stdout.reconfigure(errors="backslashreplace")
    told = _told_by(arguments)
    if told.follow:
        return _follow(told, session)
    if told.tables:
        return _grow(told, clocks, session)
    stores = opened or (lambda address: store_of(address, environment, told.store_timeout_s))
    try:
        target = target_of(
            told.out,
            stores,
            clocks,
            each_run=told.each_run,
            keep_days=told.keep_days,
            deadline_s=told.copy_deadline_s,
        )
        with target as into, traces_of(told.traces, stores, clocks, days=told.days) as traces:
            return _report(traces, into, told)
    except NoTracesError as error:
        return _nothing(str(error), allowed=told.no_traces_is_fine)
    except (StoreError, AddressError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _told_by(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What the job was told. Ends the process with status 2 where options do not go together."""
    accepted = parser()
    told = accepted.parse_args(arguments)
    if told.keep_days is not None and not told.each_run and (told.tables or not is_bucket(told.out)):
        accepted.error("--keep-days removes old runs, and there is one run only without --each-run")
    if told.follow:
        if told.each_run:
            accepted.error("--follow adds to what is there: no --each-run")
        if is_bucket(told.out) and not told.checkpoint:
            accepted.error("--follow into a bucket needs a folder for --checkpoint")
    elif told.tables:
        if told.each_run:
            accepted.error("--tables adds to what is there: no --each-run")
        if topic_of(told.traces) is not None:
            accepted.error("from a topic tables grow by --follow; with --once it ends when what is new is told")
    return told


def _report(traces: Traces, target: Target, told: argparse.Namespace) -> int:
    """The job itself."""
    spark = open_session(told.master)
    try:
        records = records_of(spark, traces.place, plan=traces.plan, store_timeout_s=str(told.store_timeout_s))
        report = write_report(records, target.folder, named=target.named, notes=traces.notes)
    except PySparkException as error:
        sys.stderr.write(f"the job failed: {error}\n")
        return 1
    finally:
        spark.stop()
    return _told(report, target, told.output)


def _grow(told: argparse.Namespace, clocks: Clocks, session: Session) -> int:
    """The job over what is new, into tables that last."""
    # Only this needs it.
    from regnum_failover.tables.growing import Growing, grow  # noqa: PLC0415

    growing = Growing(
        traces=told.traces,
        tables=told.out if is_bucket(told.out) else str(Path(told.out).absolute()),
        days=told.days,
        store_timeout_s=told.store_timeout_s,
        settle_s=told.settle_s,
        with_spans=told.spans,
    )
    try:
        grew = grow(lambda: session(told.master), growing, now_s=clocks.now_s())
    except NoTracesError as error:
        return _nothing(str(error), allowed=told.no_traces_is_fine)
    except (PySparkException, StoreError, AddressError, OSError) as error:
        sys.stderr.write(f"the job failed: {error}\n")
        return 1
    sys.stdout.write(f"{grew.to_json() if told.output == 'json' else grew.to_text(growing.tables)}\n")
    return 0


def _follow(told: argparse.Namespace, session: Session) -> int:
    """The job without end, or with what is new since the checkpoint."""
    # Only this needs it.
    from regnum_failover.following import LateSpans, follow  # noqa: PLC0415

    tables = told.out if is_bucket(told.out) else str(Path(told.out).absolute())
    late_s = late_s_of(told.traces, told.late_s)
    options = {"store_timeout_s": str(told.store_timeout_s), "days": str(told.days)}
    try:
        with session(told.master) as spark:
            # The clock goes on until what came last is told.
            records = stream_of(spark, told.traces, tick_s=str(2 * (told.gap_s + late_s)), **options)
            spark.streams.addListener(
                LateSpans(lambda count: _warn(f"{count:,} spans came too late for their change (--late-s {late_s})"))
            )
            query = follow(
                records,
                tables,
                told.checkpoint or f"{tables}/{CHECKPOINT_DIR}",
                _say,
                _say_aside,
                gap_s=told.gap_s,
                late_s=late_s,
                once=told.once,
                with_spans=told.spans,
                store_timeout_s=told.store_timeout_s,
            )
            query.awaitTermination()
    except PySparkException as error:
        sys.stderr.write(f"the job failed: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 0
    return 0


def late_s_of(traces: str, told: int | None) -> int:
    """How many seconds later than others a span may come, of that place; None: no option says it."""
    if told is not None:
        return told
    return LATE_S if topic_of(traces) is None else LATE_OF_A_TOPIC_S


def _say(changes: Sequence[Change]) -> None:
    sys.stdout.write(f"{tables_of(changes)}\n")
    sys.stdout.flush()


def _say_aside(tally: Tally) -> None:
    # Only this needs it.
    from regnum_failover.tables.growing import aside_of  # noqa: PLC0415

    if text := aside_of(tally):
        first = "".join(f"; the first: {one.file}: {one.reason}" for one in tally.aside[:1])
        _warn(f"{text}{first}")


def _warn(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _told(report: Report, target: Target, form: str) -> int:
    removed = target.finish(lambda: f"{report.to_text()}\n")
    sys.stdout.write(f"{report.to_json() if form == 'json' else report.to_text()}\n")
    if removed:
        sys.stderr.write(f"removed what was old: {', '.join(removed)}\n")
    return 0


def _nothing(text: str, *, allowed: bool) -> int:
    sys.stderr.write(f"{text}\n")
    return 0 if allowed else NOT_FOUND


def parser() -> argparse.ArgumentParser:
    """What the command accepts."""
    made = argparse.ArgumentParser(
        prog="regnum_failover",
        description="Says where the time of failovers went. A bucket is s3://BUCKET/PREFIX; where it is and who we are "
        "comes from the AWS_* variables and files of any AWS tool.",
    )
    add = made.add_argument
    add(
        "traces",
        help="folder of OTLP files, one of them, or a glob pattern, that every executor sees; a bucket; or topic:NAME",
    )
    add("out", help="folder for the tables, where those of an earlier run are replaced; or a bucket, with --each-run")
    add("-o", "--output", choices=("table", "json"), default="table", help="form of what is printed")
    add("--master", default="local[*]", help="Spark master when spark-submit does not name one")
    add(
        "--each-run",
        action="store_true",
        help="a folder for each run below OUT, named by its time, with report.txt; whole when it has _SUCCESS",
    )
    add("--keep-days", type=_positive, help="with --each-run, or a bucket: remove runs that are older")
    add("--no-traces-is-fine", action="store_true", help=f"status 0, and not {NOT_FOUND}, when there are none yet")
    add("--follow", action="store_true", help="do not end: add changes to tables as they come, and print them")
    add("--once", action="store_true", help="with --follow: end when what is new since the checkpoint is told")
    add("--checkpoint", help=f"with --follow: folder that says how far it came; default OUT/{CHECKPOINT_DIR}")
    add("--gap-s", type=int, default=30, help="with --follow: a change is told when its spans are silent for so long")
    add(
        "--late-s",
        type=int,
        help=f"with --follow: how much later than others a span may come; default {LATE_S}, of a topic "
        f"{LATE_OF_A_TOPIC_S}",
    )
    add("--tables", action="store_true", help="add what is new to tables by cluster and date; OUT may be a bucket")
    add("--settle-s", type=_positive, default=3600.0, help="with --tables: how much later than others a span may come")
    add("--spans", action="store_true", help="with --tables or --follow: a table of spans as well")
    add("--days", type=_positive, default=DAYS, help="of a bucket: objects written within so many days")
    add("--store-timeout-s", type=_positive, default=STORE_TIMEOUT_S, help="a bucket may be silent so long, four times")
    add("--copy-deadline-s", type=_positive, default=900.0, help="for copying results into a bucket")
    return made


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise ValueError(text)
    return value


if __name__ == "__main__":
    sys.exit(main())
