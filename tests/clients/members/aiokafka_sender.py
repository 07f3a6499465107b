"""A producer on aiokafka in the middle of a transaction; see tests/clients/test_zombie.py."""

from __future__ import annotations

import asyncio
import sys
import threading

import aiokafka
from aiokafka.errors import KafkaError, ProducerFenced

FLUSHED_FIRST = 100


async def send(producer: aiokafka.AIOKafkaProducer, id: str, topic: str, partitions: int, stop: threading.Event) -> str:
    sent = []
    try:
        async with producer.transaction():
            while not stop.is_set():
                count = len(sent)
                sent.append(await producer.send(topic, f"{id} {count}".encode(), partition=count % partitions))
                if count == FLUSHED_FIRST:
                    await producer.flush()
                    print("open", flush=True)
                await asyncio.sleep(0.002)
            await asyncio.gather(*sent)
    except ProducerFenced:
        return "fenced"
    except KafkaError as error:
        return type(error).__name__
    finally:
        for record in sent:
            if record.done() and not record.cancelled():
                record.exception()
    return "committed"


async def main() -> None:
    bootstrap, id, topic, partitions = sys.argv[1:]
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=id)
    await producer.start()
    print(await send(producer, id, topic, int(partitions), stop), flush=True)
    await producer.stop()


asyncio.run(main())
