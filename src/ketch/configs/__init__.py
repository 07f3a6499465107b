"""The broker's settings, and the tables of topic and broker configs under Kafka's names."""
