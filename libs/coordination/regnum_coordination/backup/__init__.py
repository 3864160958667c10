"""Backups of a store's tree, taken and restored, on any store behind the port."""
