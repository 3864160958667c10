"""The console: pages of a running cluster for people, served to their browsers."""
