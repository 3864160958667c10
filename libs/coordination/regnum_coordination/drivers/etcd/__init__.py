"""The port on etcd: ephemerals are leases, versions are etcd's minus one, zxids are revisions, multis are transactions.

etcd3 makes the client, grants and revokes leases, answers for the server's health and builds comparisons; everything
that must survive a lost connection (watches, keep-alive) or be fast (reads, transactions) runs the same generated
stubs on ``grpc.aio``.
"""

from regnum_coordination.drivers import etcd_rpc

etcd_rpc.install()

from regnum_coordination.drivers.etcd.address import EtcdAddress  # noqa: E402 - the finder must be there first
from regnum_coordination.drivers.etcd.examining import examine  # noqa: E402
from regnum_coordination.drivers.etcd.opening import open_url  # noqa: E402
from regnum_coordination.drivers.etcd.store import EtcdStore  # noqa: E402

__all__ = ["EtcdAddress", "EtcdStore", "examine", "open_url"]
