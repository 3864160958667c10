"""What is wrong with the cluster, since when, and what has been so for too long."""
