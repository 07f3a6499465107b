"""The Kafka wire protocol, sans-IO: frames in, typed kio entities out, and back."""
