"""Writing: from a record to its acknowledgement."""
