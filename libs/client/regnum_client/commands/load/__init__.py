"""`regnum load`: records at a rate, with how long the brokers take for them."""
