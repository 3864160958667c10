"""gRPC servicers: they turn messages into calls of the broker's parts and back, and decide nothing."""
