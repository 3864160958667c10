"""A process that ends or stops itself at a step named beforehand: for tests, off unless a setting names a file."""
