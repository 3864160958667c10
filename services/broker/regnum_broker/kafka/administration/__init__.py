"""Administrative calls of Kafka's protocol besides topics: each room puts some into the words of the handlers."""
