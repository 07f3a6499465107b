"""`ketch bench`: a quick load on any Kafka, with rates and percentiles of latency."""
