"""aiokafka logs in as it is told, writes and reads; see ../README.md."""

import asyncio
import ssl
import sys
from pathlib import Path

import aiokafka
from aiokafka.abc import AbstractTokenProvider

sys.path.insert(0, str(Path(__file__).parents[1]))
from orders import serve

WAIT = 20
sessions = {}
loop = asyncio.new_event_loop()


class Token(AbstractTokenProvider):
    def __init__(self, token):
        self._token = token

    async def token(self):
        return self._token


def options(login):
    context = ssl.create_default_context(cafile=login["ca"])
    common = {"bootstrap_servers": login["bootstrap"], "client_id": login["client"], "ssl_context": context}
    if login["mechanism"] == "mTLS":
        context.load_cert_chain(login["own"])
        return {**common, "security_protocol": "SSL"}
    common |= {"security_protocol": "SASL_SSL", "sasl_mechanism": login["mechanism"]}
    if login["mechanism"] == "OAUTHBEARER":
        return {**common, "sasl_oauth_token_provider": Token(login["token"])}
    return {**common, "sasl_plain_username": login["user"], "sasl_plain_password": login["password"]}


async def started(made):
    try:
        await made.start()
    except BaseException:
        await made.stop()
        raise
    return made


async def write(order):
    session = order["session"]
    if session not in sessions:
        sessions[session] = await started(aiokafka.AIOKafkaProducer(**options(order["login"])))
    async with asyncio.timeout(WAIT):
        await sessions[session].send_and_wait(order["topic"], order["value"].encode())
    return {"ok": True}


async def read(order):
    session, values = order["session"], []
    if session not in sessions:
        group = {"group_id": order["group"], "auto_offset_reset": "earliest", "enable_auto_commit": False}
        made = aiokafka.AIOKafkaConsumer(order["topic"], **options(order["login"]), **group)
        sessions[session] = await started(made)
    consumer = sessions[session]
    try:
        async with asyncio.timeout(WAIT):
            while len(values) < order["count"]:
                values.append((await consumer.getone()).value.decode())
    except TimeoutError:
        pass
    await consumer.commit()
    return {"values": values}


async def close(order):
    session = sessions.pop(order["session"], None)
    if session is not None:
        await session.stop()
    return {"ok": True}


def blocking(step):
    return lambda order: loop.run_until_complete(step(order))


serve(aiokafka.__version__, {"write": blocking(write), "read": blocking(read), "close": blocking(close)})
