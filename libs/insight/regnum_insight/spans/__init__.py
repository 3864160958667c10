"""Spans as the analysis knows them, and how they are read out of whatever files hold them."""
