"""The audit log as a file of JSON lines, written by a thread."""
