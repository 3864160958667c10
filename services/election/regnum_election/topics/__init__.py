"""What happens to topics, step by step."""
