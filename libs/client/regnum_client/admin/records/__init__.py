"""Records of topics, as an administrator sees them."""
