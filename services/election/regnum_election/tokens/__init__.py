"""Delegation tokens at the controller: made, renewed, ended, shown, and swept up."""
