"""Orders to brokers until they are acknowledged."""
