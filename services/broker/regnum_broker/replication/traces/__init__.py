"""What replicas add to the trace of the change that gave them their roles."""
