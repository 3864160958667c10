"""The cluster as a client sees it: metadata, connections, the controller."""
