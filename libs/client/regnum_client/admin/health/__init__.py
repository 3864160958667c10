"""What is wrong with a cluster, as its controller sees it."""
