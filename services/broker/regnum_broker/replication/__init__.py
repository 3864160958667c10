"""How a partition's replicas stay the same: decisions (pure) and the shells that carry them out."""
