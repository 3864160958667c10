"""Records in and out: `regnum produce` and `regnum consume`."""
