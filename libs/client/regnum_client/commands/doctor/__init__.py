"""`regnum doctor`: everything is looked at, and each finding has its evidence and what to do."""
