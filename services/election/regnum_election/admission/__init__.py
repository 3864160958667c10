"""May this mutation happen now: quotas, who judges by them, and who stands in."""
