"""The report's page in a real browser."""
