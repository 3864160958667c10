"""The alert rules find what they are for and leave the rest alone: Prometheus's own tool says so."""

import shutil
import subprocess
from pathlib import Path

import pytest

RULES = Path(__file__).parents[3] / "deploy" / "prometheus"
PROMTOOL = shutil.which("promtool")


@pytest.mark.skipif(
    PROMTOOL is None,
    reason="no promtool here (Debian: apt-get install prometheus): alerts_test.yaml was not run",
)
def test_the_tests_of_the_rules_pass() -> None:
    assert PROMTOOL is not None
    ran = subprocess.run(
        [PROMTOOL, "test", "rules", "alerts_test.yaml"], cwd=RULES, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "SUCCESS" in ran.stdout + ran.stderr
