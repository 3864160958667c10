"""`make test`: its parts, the second runs of tests that failed in them, and one result."""
