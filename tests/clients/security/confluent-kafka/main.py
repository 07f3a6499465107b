"""confluent-kafka logs in as it is told, writes and reads; see ../README.md."""

import sys
import time
from pathlib import Path

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer

sys.path.insert(0, str(Path(__file__).parents[1]))
from orders import serve

WAIT = 20
FATAL = ("_AUTHENTICATION", "_SSL")  # librdkafka goes on trying: what it says meanwhile is all that there is
sessions = {}
refusals = {}  # by session, the last error of these kinds


def options(order):
    login, session = order["login"], order["session"]

    def note(error):
        if error.name() in FATAL or " alert " in error.str():  # with TLS 1.3 that is what a read ends with
            refusals[session] = error

    common = {
        "bootstrap.servers": login["bootstrap"],
        "client.id": login["client"],
        "ssl.ca.location": login["ca"],
        "error_cb": note,
        "log_level": 0,
    }
    if login["mechanism"] == "mTLS":
        own = {"ssl.certificate.location": login["own"], "ssl.key.location": login["own"]}
        return {**common, "security.protocol": "SSL", **own}
    common |= {"security.protocol": "SASL_SSL", "sasl.mechanism": login["mechanism"]}
    if login["mechanism"] == "OAUTHBEARER":
        return {**common, "oauth_cb": lambda _: (login["token"], time.time() + 3600)}
    return {**common, "sasl.username": login["user"], "sasl.password": login["password"]}


def check(session):
    """Raises what the session was refused for."""
    if session in refusals:
        raise Refused(refusals.pop(session))


class Refused(Exception):
    def __init__(self, error):
        super().__init__(f"{error.name()}: {error.str()}")


def write(order):
    session, delivered = order["session"], []
    if session not in sessions:
        sessions[session] = Producer({**options(order), "message.timeout.ms": WAIT * 1000})
    producer = sessions[session]
    producer.produce(order["topic"], order["value"], on_delivery=lambda error, _: delivered.append(error))
    while not delivered:
        producer.poll(0.1)
        check(session)
    if delivered[0]:
        raise Refused(delivered[0])
    return {"ok": True}


def read(order):
    session = order["session"]
    if session not in sessions:
        group = {"group.id": order["group"], "auto.offset.reset": "earliest", "enable.auto.commit": False}
        sessions[session] = Consumer({**options(order), **group})
        sessions[session].subscribe([order["topic"]])
    consumer, values = sessions[session], []
    end = time.monotonic() + WAIT
    while len(values) < order["count"] and time.monotonic() < end:
        message = consumer.poll(0.2)
        check(session)
        if message is not None and message.error():
            raise Refused(message.error())
        if message is not None:
            values.append(message.value().decode())
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        raise Refused(error.args[0]) from None
    return {"values": values}


def close(order):
    session = sessions.pop(order["session"], None)
    refusals.pop(order["session"], None)
    if isinstance(session, Producer):
        session.purge()
        session.flush(1)
    elif session is not None:
        session.close()
    return {"ok": True}


librdkafka = confluent_kafka.libversion()[0]
version = f"{confluent_kafka.version()}, librdkafka {librdkafka}"
serve(version, {"write": write, "read": read, "close": close})
