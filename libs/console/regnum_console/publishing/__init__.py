"""Traces into the topic ``__traces``: from the folder of a machine, and from what is sent by OTLP."""
