"""Leaders of partitions and of the cluster: elected, explained, described."""
