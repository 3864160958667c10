"""Commands that only look, at much."""
