"""A whole cluster as processes of one machine: `regnum up`, the demo, tests."""
