"""What stands before the servicers of every service: which right each call needs, asked before anything is done."""
