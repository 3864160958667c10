"""A cluster under load loses its leaders; nothing that was acknowledged is lost. `python -m regnum_local.demo`."""
