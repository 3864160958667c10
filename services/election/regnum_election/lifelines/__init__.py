"""What a lifeline carries: one stream, and what a broker says on it of itself and of others."""
