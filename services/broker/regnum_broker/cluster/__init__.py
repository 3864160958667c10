"""The broker's place in the cluster: registration, lifeline, the controller and its orders, stopping."""
