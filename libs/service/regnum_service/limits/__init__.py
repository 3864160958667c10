"""The budget of one process: what work takes is reserved before it is done, and paid by its caller."""
