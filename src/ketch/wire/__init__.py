"""The Kafka wire protocol, sans-IO: requests from frames to kio entities, responses from dicts to bytes."""
