"""People who reach a console from elsewhere: each signs in, and is asked for by name at the cluster."""
