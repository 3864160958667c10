"""What metadata processes and standbys are told the cluster is."""
