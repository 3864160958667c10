"""Backups of the store's tree: their lines, what becomes of each node that is restored, the nodes that say so."""
