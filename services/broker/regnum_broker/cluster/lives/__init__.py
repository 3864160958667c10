"""Lives of the log directory, and a store that went back to an earlier state."""
