"""The port on ZooKeeper: its own semantics, and what it leaves open settled.

kazoo makes the client: framing, connection to one server after the other, transactions. A session of ours is one
session of ZooKeeper's and never a second one; its deadline, its states and the hand-over to the event loop are kept
here.
"""

from regnum_coordination.drivers.zookeeper.address import ZooKeeperAddress
from regnum_coordination.drivers.zookeeper.examining import examine
from regnum_coordination.drivers.zookeeper.store import ZooKeeperStore, open_url

__all__ = ["ZooKeeperAddress", "ZooKeeperStore", "examine", "open_url"]
