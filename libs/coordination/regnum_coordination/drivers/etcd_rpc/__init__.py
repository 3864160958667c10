"""etcd's wire messages for the package etcd3: see README.md in this folder. Import ``etcd3`` only after ``install``."""

from regnum_coordination.drivers.etcd_rpc.finder import install

__all__ = ["install"]
