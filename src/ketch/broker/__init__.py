"""The Kafka broker: a thin asyncio shell, one file per API in `handlers`, and the table that names them."""
