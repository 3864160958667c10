"""`regnum logs`: files of a log, looked at without a broker."""
