"""`regnum quotas`: what is set, who uses it, and what this cluster can bear."""
