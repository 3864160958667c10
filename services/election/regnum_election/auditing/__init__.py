"""What the audit log says of administrative calls."""
