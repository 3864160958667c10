"""The cluster's metadata as one process holds it: compared with what others hold, and told to those that watch it."""
