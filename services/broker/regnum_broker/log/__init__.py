"""Log storage of a broker: directories, replicas, segments. Blocking; nothing here knows an event loop.

Writes come from one thread for each directory; reads may come from any thread beside them.
"""
