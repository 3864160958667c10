"""Rolling upgrades of a cluster under load: from the last release to this one, back, and forth again."""
