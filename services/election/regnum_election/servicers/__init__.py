"""gRPC servicers: messages into calls and back. They decide nothing."""
