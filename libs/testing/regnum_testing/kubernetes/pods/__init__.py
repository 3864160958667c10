"""Programs that run inside the cluster, from a ConfigMap, with what the product's image has and nothing else."""
