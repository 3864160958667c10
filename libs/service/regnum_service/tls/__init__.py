"""TLS at listeners and towards them, from PEM files that may change while processes run."""
