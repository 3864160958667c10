"""Changes and descriptions: topics, quotas, settings, recovery."""
