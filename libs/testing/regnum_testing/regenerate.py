"""Generated code: make it again, and compare it with what is checked in.

python -m regnum_testing.regenerate            exit 1 and name the files that differ
python -m regnum_testing.regenerate --write    replace what is checked in; ``make proto``
"""

import ast
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
"""The checkout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One source tree and the tree generated from it."""

    sources: Path
    """Folder that the imports inside the ``.proto`` files are relative to."""
    below: str
    """Pattern of the files below it."""
    generated: Path
    """Folder of the generated code."""
    typed: bool
    """Whether ``.pyi`` files are made."""
    called_only: bool = False
    """Whether its services are somebody else's: of their code only what calls them is kept."""


_ETCD_RPC: Final = Path("libs/coordination/regnum_coordination/drivers/etcd_rpc")

TARGETS: Final = (
    Target(
        sources=Path("proto"),
        below="regnum/*/v1/*.proto",
        generated=Path("proto/gen"),
        typed=True,
    ),
    Target(
        sources=_ETCD_RPC, below="etcd3/etcdrpc/*.proto", generated=_ETCD_RPC / "gen", typed=False, called_only=True
    ),
)
"""Everything that is generated in this repository."""


def generate(target: Target, into: Path) -> None:
    """Make the code of one target below ``into``."""
    into.mkdir(parents=True, exist_ok=True)
    sources = sorted((ROOT / target.sources).glob(target.below))
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / target.sources}"]
    command += [f"--python_out={into}", f"--grpc_python_out={into}"]
    if target.typed:
        tools = Path(sys.executable).parent
        command += [f"--plugin={name}={tools / name}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")]
        command += [f"--mypy_out=quiet:{into}", f"--mypy_grpc_out=quiet:{into}"]
    subprocess.run([*command, *map(str, sources)], check=True, timeout=120)
    for source in sources:
        if "\nservice " not in source.read_text(encoding="utf-8"):
            stem = into / source.relative_to(ROOT / target.sources).with_suffix("")
            for suffix in ("_pb2_grpc.py", "_pb2_grpc.pyi"):
                stem.with_name(stem.name + suffix).unlink(missing_ok=True)
    if target.called_only:
        for file in into.rglob("*_pb2_grpc.py"):
            file.write_text(stubs_of(file.read_text(encoding="utf-8")), encoding="utf-8")


def stubs_of(code: str) -> str:
    """Code of gRPC's generator without what serves: classes and functions other than stubs."""
    lines = code.splitlines(keepends=True)
    for item in reversed(ast.parse(code).body):
        if isinstance(item, ast.ClassDef | ast.FunctionDef) and not item.name.endswith("Stub"):
            del lines[item.lineno - 1 : item.end_lineno]
    # Sections begin with a comment of their own, which may stand alone now.
    kept = [line for line in lines if not line.lstrip().startswith("# This class is part of")]
    return re.sub(r"\n{4,}", "\n\n\n", "".join(kept)).rstrip("\n") + "\n"


def generated_files(folder: Path) -> dict[str, bytes]:
    """Generated files below a folder, by relative path."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*_pb2*.py*"))
        if "__pycache__" not in file.parts
    }


def differences(target: Target, fresh: Path) -> list[str]:
    """Files that are missing, stale or left over, as paths in the checkout."""
    wanted, found = generated_files(fresh), generated_files(ROOT / target.generated)
    return [
        str(target.generated / name)
        for name in sorted(wanted.keys() | found.keys())
        if wanted.get(name) != found.get(name)
    ]


def write(target: Target, fresh: Path) -> None:
    """Replace the checked-in code."""
    for name in generated_files(ROOT / target.generated):
        (ROOT / target.generated / name).unlink()
    for name in generated_files(fresh):
        destination = ROOT / target.generated / name
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(fresh / name, destination)


def main(arguments: Sequence[str]) -> int:
    """Exit status of the tool."""
    if list(arguments) not in ([], ["--write"]):
        print("usage: python -m regnum_testing.regenerate [--write]", file=sys.stderr)  # noqa: T201
        return 2
    stale: list[str] = []
    for number, target in enumerate(TARGETS):
        with tempfile.TemporaryDirectory(prefix=f"regnum-generated-{number}-") as name:
            fresh = Path(name)
            generate(target, fresh)
            different = differences(target, fresh)
            if different and arguments:
                write(target, fresh)
            stale += different
    if stale and not arguments:
        print("generated code differs from what the generator makes; run `make proto`:", file=sys.stderr)  # noqa: T201
        print(*(f"  {name}" for name in stale), sep="\n", file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
