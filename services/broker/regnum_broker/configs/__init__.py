"""What the broker runs with: what it was started with, and what the store has said since."""
