"""Consumer groups, as their coordinators tell of them."""
