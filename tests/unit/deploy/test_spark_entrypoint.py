"""The entry point of the job's image: what Spark on Kubernetes says to it, and everything else."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from regnum_testing.otlp_lines import broker_failover, line

ROOT = Path(__file__).parents[3]
ENTRY = ROOT / "deploy" / "docker" / "spark-entrypoint.sh"
SAID = (
    "driver",
    "--properties-file",
    "/opt/spark/conf/spark.properties",
    "--class",
    "org.apache.spark.deploy.PythonRunner",
)


def run(*arguments: str, path: str = os.environ["PATH"], **variables: str) -> subprocess.CompletedProcess[str]:
    told = {"PATH": path, **variables}
    return subprocess.run([ENTRY, *arguments], env=told, capture_output=True, text=True, check=False, timeout=280)


def test_a_driver_is_spark_submit_in_its_own_pod(tmp_path: Path) -> None:
    fake = tmp_path / "spark-submit"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 7\n', encoding="utf-8")
    fake.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = run(*SAID, "local:///opt/regnum/job.py", "/a b", "s3://x/*", path=path, SPARK_DRIVER_BIND_ADDRESS="10.1.2.3")
    assert done.returncode == 7, "the status of the job is that of the Pod"
    assert done.stdout.splitlines() == [
        *("--conf", "spark.driver.bindAddress=10.1.2.3", "--deploy-mode", "client", *SAID[1:]),
        *("local:///opt/regnum/job.py", "/a b", "s3://x/*"),
    ]
    assert "SPARK_DRIVER_BIND_ADDRESS" in run(*SAID, path=path).stderr


def test_a_command_goes_through_and_an_executor_does_not() -> None:
    done = run("sh", "-c", 'echo "$1"; exit 5', "-", "a  b")
    assert (done.returncode, done.stdout) == (5, "a  b\n")
    for wrong, words in ((("executor",), "no executors"), ((), "say what to run")):
        refused = run(*wrong)
        assert refused.returncode == 64
        assert words in refused.stderr


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17")
def test_the_job_runs_as_the_operator_s_driver_without_a_network_or_a_name(tmp_path: Path) -> None:
    """By the properties that Spark's submission leaves in the Pod; there is no API server, and nobody has its name."""
    told = {
        "spark.master": "k8s\\://https\\://192.0.2.1\\:443",
        "spark.kubernetes.driver.master": "local[*]",
        "spark.submit.deployMode": "cluster",
        "spark.kubernetes.submitInDriver": "true",
        "spark.kubernetes.resource.type": "python",
        "spark.kubernetes.driver.pod.name": "regnum-failovers-driver",
        "spark.kubernetes.container.image": "regnum-failovers",
        "spark.driver.host": "regnum-failovers-driver-svc.regnum.invalid",
        "spark.app.id": "spark-1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    conf, traces = tmp_path / "conf", tmp_path / "traces"
    conf.mkdir()
    traces.mkdir()
    properties = conf / "spark.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in told.items()), encoding="utf-8")
    (traces / "a.jsonl").write_text(line(broker_failover(1, 0)), encoding="utf-8")
    done = run(
        *("driver", "--properties-file", str(properties), "--class", "org.apache.spark.deploy.PythonRunner"),
        *(f"local://{ROOT}/analysis/failover/job.py", str(traces), str(tmp_path / "out"), "--each-run"),
        path=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        SPARK_DRIVER_BIND_ADDRESS="127.0.0.1", SPARK_CONF_DIR=str(conf), PYTHONSAFEPATH="1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    (made,) = (tmp_path / "out").iterdir()
    assert (made / "_SUCCESS").exists()
    assert "broker 2" in (made / "report.txt").read_text("utf-8")
