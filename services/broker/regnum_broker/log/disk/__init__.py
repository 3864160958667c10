"""The disk as logs use it: files by path, failures with a meaning, room kept back."""
