"""What clients are served: records in, records out, metadata, producer ids."""
