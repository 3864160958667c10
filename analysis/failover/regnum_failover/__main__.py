"""`python -m regnum_failover TRACES OUT`, or the same arguments after `spark-submit analysis/failover/job.py`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.errors import AnalysisException, PySparkException

from regnum_failover.reading import read_spans
from regnum_failover.report import write_report
from regnum_failover.session import open_session

NOT_FOUND = 3
"""Exit status when there are no traces, as of the `regnum` command."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; returns the exit status."""
    parser = argparse.ArgumentParser(prog="regnum_failover", description="Says where the time of failovers went.")
    parser.add_argument(
        "traces", help="folder of OTLP JSON lines files (*.jsonl), or a glob pattern, or any URL of Spark"
    )
    parser.add_argument("out", help="folder for the tables; those of an earlier run there are replaced")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="form of what is printed")
    parser.add_argument("--master", default="local[*]", help="Spark master when spark-submit does not name one")
    told = parser.parse_args(arguments)
    path = f"{told.traces.rstrip('/')}/*.jsonl" if Path(told.traces).is_dir() else told.traces
    spark = open_session(told.master)
    try:
        report = write_report(read_spans(spark, path), told.out)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        sys.stderr.write(f"there are no traces at {path}; give the folder in which the services wrote *.jsonl files\n")
        return NOT_FOUND
    except PySparkException as error:
        sys.stderr.write(f"the job failed: {error}\n")
        return 1
    finally:
        spark.stop()
    sys.stdout.write(f"{report.to_json() if told.output == 'json' else report.to_text()}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
