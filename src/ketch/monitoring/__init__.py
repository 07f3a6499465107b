"""HTTP beside Kafka: metrics and health."""
