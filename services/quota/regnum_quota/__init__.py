"""The quota service: one process decides which mutations of the cluster may happen now (KIP-599)."""
