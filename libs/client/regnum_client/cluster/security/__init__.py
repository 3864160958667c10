"""How the SDK protects its connections, and says who it is."""
