"""Access rules: who may do what with which resources (Kafka's model: KIP-11, KIP-290). Pure."""
