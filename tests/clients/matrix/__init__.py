"""Every major client and tool against Ketch: what of Kafka's everyday life works with it. README.md says how."""
