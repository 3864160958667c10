"""The metadata service: one image of the cluster, one shared payload for all brokers, acknowledged by each."""
