"""Spans and metrics of every service and of the SDK: their names, and how they leave the process."""
