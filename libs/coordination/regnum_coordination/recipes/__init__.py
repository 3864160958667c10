"""What services build on the port: definite answers, leadership, membership."""
