"""Kafka's protocol on the wire, the server's side: requests are read, responses are written. Pure."""
