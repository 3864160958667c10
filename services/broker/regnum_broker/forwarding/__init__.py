"""Calls that this broker passes on to the controller for clients that know none (KIP-590)."""
