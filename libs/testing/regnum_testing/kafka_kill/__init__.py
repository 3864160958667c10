"""A client of Kafka sends records while the leader of its partition is killed: what was lost, doubled, out of order."""
