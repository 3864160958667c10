"""Processes of a cluster on this machine, one by one."""
