"""The event log: what happened, why, and who decided it."""
