"""What processes hold of the cluster's metadata, and how far they are."""
