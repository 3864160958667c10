"""etcd3's wire messages: generated again, and the same as in the package."""

import ast
import subprocess
import sys
from importlib.metadata import files
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from regnum_coordination.drivers import etcd_rpc
from regnum_coordination.drivers.etcd_rpc.finder import GENERATED, NAMES, EtcdRpcFinder

SHORT_NAMES = ("kv", "auth", "rpc")


def _in_package(name: str) -> descriptor_pb2.FileDescriptorProto:
    """The descriptor inside etcd3's own module, which is read and not imported."""
    (path,) = [file for file in files("etcd3") or () if str(file) == f"etcd3/etcdrpc/{name}_pb2.py"]
    for node in ast.walk(ast.parse(Path(str(path.locate())).read_text(encoding="utf-8"))):
        if isinstance(node, ast.keyword) and node.arg == "serialized_pb" and isinstance(node.value, ast.Call):
            (literal,) = node.value.args
            assert isinstance(literal, ast.Constant)
            assert isinstance(literal.value, str)
            return descriptor_pb2.FileDescriptorProto.FromString(literal.value.encode("latin1"))
    raise AssertionError(f"no descriptor in {path}")


def _generated(name: str) -> descriptor_pb2.FileDescriptorProto:
    etcd_rpc.install()
    from etcd3.etcdrpc import auth_pb2, kv_pb2, rpc_pb2  # noqa: PLC0415 - loadable only now

    found = descriptor_pb2.FileDescriptorProto()
    {"kv": kv_pb2, "auth": auth_pb2, "rpc": rpc_pb2}[name].DESCRIPTOR.CopyToProto(found)
    return found


@pytest.mark.parametrize("name", SHORT_NAMES)
def test_recompiled_descriptors_are_those_of_the_package(name: str) -> None:
    ours, theirs = _generated(name), _in_package(name)
    assert ours.name == f"etcd3/etcdrpc/{theirs.name}"
    assert list(ours.dependency) == [f"etcd3/etcdrpc/{other}" for other in theirs.dependency]
    ours.name = theirs.name
    ours.dependency[:] = theirs.dependency
    assert ours == theirs


def test_the_finder_answers_for_four_names_only() -> None:
    finder = EtcdRpcFinder()
    assert len(NAMES) == 4
    for name in NAMES:
        spec = finder.find_spec(name)
        assert spec is not None
        assert Path(str(spec.origin)).parent == GENERATED
    for name in ("etcd3", "etcd3.etcdrpc", "etcd3.client", "kv_pb2", "etcd3.etcdrpc.other_pb2"):
        assert finder.find_spec(name) is None


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


def test_install_is_idempotent() -> None:
    done = _run(
        "import sys\n"
        "from regnum_coordination.drivers import etcd_rpc\n"
        "from regnum_coordination.drivers.etcd_rpc.finder import EtcdRpcFinder\n"
        "etcd_rpc.install(); etcd_rpc.install()\n"
        "import etcd3, etcd3.etcdrpc.rpc_pb2 as rpc\n"
        "print(sum(isinstance(f, EtcdRpcFinder) for f in sys.meta_path), rpc.__file__)\n"
    )
    assert done.stdout.split() == ["1", str(GENERATED / "rpc_pb2.py")]


def test_install_refuses_when_the_old_modules_are_loaded() -> None:
    done = _run(
        "import sys, types\n"
        "sys.modules['etcd3.etcdrpc.kv_pb2'] = types.ModuleType('kv_pb2')\n"
        "from regnum_coordination.drivers import etcd_rpc\n"
        "etcd_rpc.install()\n"
    )
    assert "ImportError: etcd3.etcdrpc.kv_pb2 was imported before" in done.stderr
