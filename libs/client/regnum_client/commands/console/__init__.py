"""The console in a browser: `regnum console`."""
