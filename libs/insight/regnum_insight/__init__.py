"""Where the time of changes of leadership went, by the traces: reading, attribution, and what people see of it."""
