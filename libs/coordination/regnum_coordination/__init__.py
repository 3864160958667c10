"""The ZooKeeper-compatible coordination adapter: one port, a driver for each store, recipes.

    from regnum_coordination import open_store
    store = await open_store("etcd://127.0.0.1:2379/regnum", session_timeout_s=6.0)

The port is ``regnum_coordination.port.Store``; its errors are in ``regnum_coordination.errors``. Only ``open_store``
picks a driver.
"""

from regnum_coordination.opening import open_store

__all__ = ["open_store"]
