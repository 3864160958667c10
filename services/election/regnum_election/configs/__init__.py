"""Settings of the cluster and of topics: read, kept up with, changed, shown."""
