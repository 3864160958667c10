"""Every setting that a page names is one that there is: pages that promise another one are found, not believed."""

import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from regnum_testing.kustomize.overlays import SETTINGS

ROOT: Final = Path(__file__).parents[3]
PAGES: Final = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "decisions"),
    *sorted((ROOT / "services").glob("*/README.md")),
    *sorted((ROOT / "deploy").rglob("README.md")),
)
SOURCES: Final = ("libs", "services", "bench", "analysis", "deploy", "tests/integration")
FOREIGN: Final = {
    "buildah, docker, skopeo": {"--build-arg", "--digests", "--format"},
    "buf curl": {"--http2-prior-knowledge", "--protocol"},
    "etcd": {"--initial-cluster-state", "--max-txn-ops"},
    "kafka-topics.sh, kafka-configs.sh, kafka-consumer-groups.sh": {"--alter", "--describe"},
    "kubectl": {
        *("--all", "--command", "--delete-emptydir-data", "--dry-run", "--env", "--force", "--from", "--from-file"),
        *("--grace-period", "--ignore-daemonsets", "--image", "--labels", "--pod-selector", "--replicas", "--type"),
    },
    "pip": {"--no-deps", "--require-hashes"},
    "prometheus": {"--enable-feature"},
    "pytest": {"--basetemp"},
    "protoc": {"--go", "--go-grpc"},
    "systemctl, useradd": {"--home-dir", "--now", "--system"},
    "typer": {"--install-completion"},
    "spark-submit and its driver": {"--properties-file"},
}
"""Options of other programs, by their names."""
FLAG: Final = re.compile(r"(?<![\w-])--[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?![\w-]|\*)")
VARIABLE: Final = re.compile(r"\bREGNUM_[A-Z0-9_]*[A-Z0-9]\b(?!_\*|\*)")


@cache
def fields() -> frozenset[str]:
    """Settings of the services."""
    found: set[str] = set()
    for module, kind in SETTINGS.values():
        found |= set(getattr(importlib.import_module(module), kind).model_fields)
    return frozenset(found)


@cache
def code() -> str:
    """All that commands and tools are made of."""
    return "\n".join(
        path.read_text(encoding="utf-8") for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py"))
    )


def named(pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """What the pages name, and where."""
    for page in PAGES:
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            for name in pattern.findall(line):
                yield name, f"{page.relative_to(ROOT)}:{number}"


def test_every_flag_that_a_page_names_is_one_that_there_is() -> None:
    declared = {f"--{field.replace('_', '-')}" for field in fields()} | set(
        re.findall(r'["/](--[a-z][a-z0-9-]*)', code())
    )
    # Typer makes the option of an argument that has a default: `within_s` is --within-s.
    declared |= {f"--{name.replace('_', '-')}" for name in re.findall(r"^    (\w+): Annotated\[", code(), re.MULTILINE)}
    foreign = set().union(*FOREIGN.values())
    # Prefixes, as in f"--tls-{name}".
    prefixes = tuple(re.findall(r'"(--[a-z-]+-)\{', code()))
    unknown = [
        f"{where}: {name}"
        for name, where in named(FLAG)
        if name not in declared | foreign | {"--help"} and not name.startswith(prefixes)
    ]
    assert unknown == []


def test_every_variable_that_a_page_names_is_one_that_is_read() -> None:
    declared = {f"REGNUM_{field.upper()}" for field in fields()} | set(re.findall(r'"(REGNUM_[A-Z0-9_]+)"', code()))
    # Prefixes, as in f"REGNUM_TLS_{name}".
    prefixes = tuple(re.findall(r'"(REGNUM_[A-Z_]+_)\{', code()))
    unknown = [
        f"{where}: {name}" for name, where in named(VARIABLE) if name not in declared and not name.startswith(prefixes)
    ]
    assert unknown == []


def test_a_setting_that_there_is_not_is_found() -> None:
    assert FLAG.findall("`--no-such-setting 3`, a--b, --internal-tls-*, `--x`") == ["--no-such-setting", "--x"]
    assert VARIABLE.findall("REGNUM_NO_SUCH=1, REGNUM_TLS_*, XREGNUM_A") == ["REGNUM_NO_SUCH"]
    assert "no_such_setting" not in fields()
