"""kafka-python logs in as it is told, writes and reads; see ../README.md."""

import sys
import time
from contextlib import suppress
from pathlib import Path

import kafka
from kafka.errors import KafkaTimeoutError
from kafka.net.sasl.oauth import AbstractTokenProvider

sys.path.insert(0, str(Path(__file__).parents[1]))
from orders import serve

WAIT = 10
sessions = {}


class Token(AbstractTokenProvider):
    def __init__(self, token):
        super().__init__()
        self._token = token

    def token(self):
        return self._token


def options(login):
    common = {"bootstrap_servers": login["bootstrap"], "client_id": login["client"], "ssl_cafile": login["ca"]}
    common["bootstrap_timeout_ms"] = 5000
    if login["mechanism"] == "mTLS":
        return {**common, "security_protocol": "SSL", "ssl_certfile": login["own"], "ssl_keyfile": login["own"]}
    common |= {"security_protocol": "SASL_SSL", "sasl_mechanism": login["mechanism"]}
    if login["mechanism"] == "OAUTHBEARER":
        return {**common, "sasl_oauth_token_provider": Token(login["token"])}
    return {**common, "sasl_plain_username": login["user"], "sasl_plain_password": login["password"]}


def write(order):
    session = order["session"]
    if session not in sessions:
        sessions[session] = kafka.KafkaProducer(**options(order["login"]), max_block_ms=WAIT * 1000)
    sessions[session].send(order["topic"], order["value"].encode()).get(WAIT)
    return {"ok": True}


def read(order):
    session, values = order["session"], []
    if session not in sessions:
        group = {"group_id": order["group"], "auto_offset_reset": "earliest", "enable_auto_commit": False}
        sessions[session] = kafka.KafkaConsumer(order["topic"], **options(order["login"]), **group)
    consumer, end = sessions[session], time.monotonic() + WAIT
    while len(values) < order["count"] and time.monotonic() < end:
        for records in consumer.poll(5000).values():
            values += [record.value.decode() for record in records]
    consumer.commit()
    return {"values": values}


def close(order):
    session = sessions.pop(order["session"], None)
    if isinstance(session, kafka.KafkaProducer):
        with suppress(KafkaTimeoutError):  # there is no broker any more that lets it in
            session.close(timeout=1)
    elif session is not None:
        session.close(autocommit=False, timeout_ms=1000)
    return {"ok": True}


serve(kafka.__version__, {"write": write, "read": read, "close": close})
