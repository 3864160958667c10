"""Answers imports of etcd3's four generated modules with the ones generated here; touches nothing else."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

GENERATED: Final = Path(__file__).parent / "gen" / "etcd3" / "etcdrpc"
"""Folder of the generated modules."""

NAMES: Final = frozenset(f"etcd3.etcdrpc.{name}" for name in ("kv_pb2", "auth_pb2", "rpc_pb2", "rpc_pb2_grpc"))
"""The only modules that are answered for."""


class EtcdRpcFinder(MetaPathFinder):
    """Finds the four modules in ``gen``."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of one of the four modules; None leaves the name to the others."""
        del path, target
        if fullname not in NAMES:
            return None
        return spec_from_file_location(fullname, GENERATED / f"{fullname.rpartition('.')[2]}.py")


def install() -> None:
    """Put the finder first; again does nothing.

    Raises:
        ImportError: the package's own modules are loaded already.
    """
    if any(isinstance(finder, EtcdRpcFinder) for finder in sys.meta_path):
        return
    if loaded := sorted(NAMES & sys.modules.keys()):
        raise ImportError(f"{', '.join(loaded)} was imported before; import etcd3 only through regnum_coordination")
    sys.meta_path.insert(0, EtcdRpcFinder())
