"""Makes the code that speaks Kafka's protocol."""
