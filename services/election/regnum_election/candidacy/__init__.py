"""Who is controller, and becoming it."""
