"""Commands for what is damaged and nobody can mend."""
