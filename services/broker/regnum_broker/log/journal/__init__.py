"""What a log directory notes of all its replicas: one journal, one checkpoint."""
