"""Elections that nobody's death asks for: balance, by request, unclean; and why partitions have no leader."""
