"""Delegation tokens: made, renewed, ended, shown."""
