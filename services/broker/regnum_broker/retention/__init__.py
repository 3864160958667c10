"""Records that are kept no longer: which have expired, when to look again, and how a log's start is moved."""
