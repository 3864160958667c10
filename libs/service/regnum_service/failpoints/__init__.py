"""A process that ends, stops or delays itself at a step named beforehand: for tests, off unless a setting names a file.

The steps, and how they are named, are in ``failpoint``; what a process does at each is in ``trigger``. Each program
wraps its own ports, and only where the setting is there: without it nothing of this runs.
"""
