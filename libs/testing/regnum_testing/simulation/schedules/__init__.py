"""What happens to a cluster: faults by seed, and the smallest of those that show something."""
