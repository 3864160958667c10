"""What coordinators write to the internal topic, and read from it."""
