"""What clients may take of this broker: its memory, and what quotas allow."""
