"""`regnum failovers`: changes of leadership by the traces: reports, a list, two of them side by side."""
