"""What people and programs get of the changes: tables, JSON, CSV, and one page with pictures."""
