"""What is decided about replication: pure."""
