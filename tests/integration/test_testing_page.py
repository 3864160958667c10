"""docs/use/testing.md as it stands: a test-suite with a cluster of its own, and the same in a shell."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from regnum_testing.page_commands import blocks

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(600)]

PAGE: Final = Path(__file__).parents[2] / "docs/use/testing.md"
DEADLINE_S: Final = 240.0
"""Of all that a block of the page does."""


def run(command: list[str], folder: Path) -> str:
    """What it prints in a folder that knows no cluster; it has to succeed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("REGNUM_", "PYTEST_"))}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "XDG_CONFIG_HOME": str(folder)}
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert ran.returncode == 0, f"{ran.stdout}{ran.stderr}"
    return ran.stdout


def test_its_suite_passes(tmp_path: Path) -> None:
    (tmp_path / "test_orders.py").write_text(blocks(PAGE.read_text(encoding="utf-8"), "python")[0])
    said = run([sys.executable, "-m", "pytest", "-q", "--basetemp", str(tmp_path / "pytest-data")], tmp_path)
    assert "1 passed" in said
    assert list(tmp_path.glob("pytest-data/**/logs/broker-1.log")), "what the workflow keeps of a failure"


def test_its_shell_lines_end_with_a_cluster_that_is_gone(tmp_path: Path) -> None:
    (lines,) = blocks(PAGE.read_text(encoding="utf-8"), "sh")
    said = run(["bash", "-e", "-c", f"{lines}\nwait"], tmp_path)
    assert "42 apples" in said.splitlines()
    assert not (tmp_path / "regnum-data/profile.json").exists()


def test_its_cluster_without_the_command_serves(tmp_path: Path) -> None:
    program = blocks(PAGE.read_text(encoding="utf-8"), "python")[1]
    show = "import asyncio, pathlib\n\n\nasync def use(bootstrap): print('at', *bootstrap)\n\n\n"
    said = run(
        [sys.executable, "-c", f"{program}\n{show}asyncio.run(with_a_cluster(pathlib.Path('data'), use))"], tmp_path
    )
    assert said.startswith("at 127.0.0.1:")
