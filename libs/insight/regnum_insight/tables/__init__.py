"""Changes as rows of tables that last: their columns, their rows, and what is told from them later."""
