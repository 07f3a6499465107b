"""The lane behind a listener with SASL, ACLs and quotas: it takes what is allowed; a denial is the pipeline's."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ketch.security.acls import Acl, Operation, ResourceType
from tests.support.acls import ON, Acls, allow
from tests.support.batches import batch, records
from tests.support.http import metrics
from tests.support.kafka import ALTER_CLIENT_QUOTAS, FETCH, INIT_PRODUCER_ID, PRODUCE, fetch, part, produce
from tests.support.ketch import KetchServer, eventually
from tests.support.sasl import SaslClient, add_user, sasl_server

TOPIC_DENIED, ID_DENIED, TRANSACTIONAL = 29, 53, 0x10
TAKEN, FETCHED = ("ketch_lane_requests_total", "produce"), ("ketch_lane_requests_total", "fetch")
DATA = batch(records([b"a"]))
ALICE = "User:alice"


def may(operation: Operation, name: str, resource: ResourceType = ResourceType.TOPIC) -> Acl:
    return allow(resource, name, operation, principal=ALICE)


TOPICS = (may(Operation.WRITE, "t"), may(Operation.WRITE, "other"))


class Secured:
    """A broker, its administrator's connection, and one of a client that the ACLs are about."""

    def __init__(self, server: KetchServer) -> None:
        self.server = server
        for name in ("admin", "alice"):
            add_user(server, name, "secret")
        self.admin, self.alice = self.login("admin"), self.login("alice")
        self.acls = Acls(server.redis(), self.alice)
        for name in ("t", "other"):
            self.admin.create(name)
        self.acls.set(TOPICS)
        self.warm("t", "other")

    def login(self, name: str) -> SaslClient:
        client = SaslClient(self.server.port, client_id=name)
        assert client.plain(name, "secret").error_code == 0
        return client

    def taken(self) -> float:
        return metrics(self.server).get(TAKEN, 0.0)

    def fetched(self) -> float:
        return metrics(self.server).get(FETCHED, 0.0)

    def limit(self, quota: str, rate: float | None) -> None:
        """Sets one of the client's quotas, or takes it away."""
        ops = [{"key": quota, "value": rate or 0.0, "remove": rate is None}]
        entity = [{"entity_type": "user", "entity_name": "alice"}]
        answer = self.admin.ask(ALTER_CLIENT_QUOTAS, 1, entries=[{"entity": entity, "ops": ops}], validate_only=False)
        assert answer.entries[0].error_code == 0

    def warm(self, *topics: str) -> None:
        """Until the lane takes a request to each topic."""
        for topic in topics:
            eventually(lambda topic=topic: self.is_taken(topic), what="the lane to take a request")

    def is_taken(self, topic: str) -> bool:
        """Whether the lane takes the client's next request, which is allowed."""
        before = self.taken()
        assert self.alice.produce(topic, DATA).error_code == 0
        return self.taken() > before


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    lane = ("--lane", "on", "--default-storage-layout", "batch", "--metadata-max-age-ms", "600000")
    others = ("--super-users", "User:admin", "--http-port", "0", "--quota-window-num", "2")
    server = sasl_server(tmp_path_factory.mktemp("secured"), *ON, *lane, *others).start()
    made = Secured(server)
    yield made
    for client in (made.admin, made.alice):
        client.close()
    assert server.stop() == 0, server.log


def test_what_is_allowed_is_taken_until_the_acls_change(broker: Secured) -> None:
    assert broker.is_taken("t")
    broker.acls.set([may(Operation.WRITE, "other")])
    before = broker.taken()
    assert broker.alice.produce("t", DATA).error_code == TOPIC_DENIED
    assert broker.taken() == before
    assert broker.is_taken("other")
    broker.acls.set(TOPICS)
    assert broker.is_taken("t")


def test_one_topic_of_a_request_is_denied(broker: Secured) -> None:
    broker.acls.set([may(Operation.WRITE, "t")])
    before, both = broker.taken(), {"t": 0, "other": TOPIC_DENIED}
    parts = [{"index": 0, "records": DATA}]
    asked = [{"name": name, "partition_data": parts} for name in both]
    answer = broker.alice.ask(PRODUCE, 9, acks=-1, timeout=20_000, topic_data=asked)
    assert {each.name: each.partition_responses[0].error_code for each in answer.responses} == both
    assert broker.taken() == before
    broker.acls.set(TOPICS)


def test_another_client_of_the_same_broker_is_denied(broker: Secured) -> None:
    with SaslClient(broker.server.port, client_id="alice") as stranger:
        stranger.send(PRODUCE, 9, **produce("t", DATA))
        assert stranger.closed()  # it has not said who it is
    assert broker.is_taken("t")


def test_a_transactional_id_is_denied_once_its_acl_has_gone(broker: Secured) -> None:
    broker.acls.set([*TOPICS, may(Operation.WRITE, "id", ResourceType.TRANSACTIONAL_ID)])
    alice, sequence = broker.alice, 0
    began = alice.ask(INIT_PRODUCER_ID, 4, transactional_id="id", transaction_timeout=60_000)
    assert began.error_code == 0

    def put() -> int:
        nonlocal sequence
        producer = {"producer_id": began.producer_id, "producer_epoch": began.producer_epoch}
        data = batch(records([b"a"]), attributes=TRANSACTIONAL, base_sequence=sequence, **producer)
        answer = alice.ask(PRODUCE, 12, **produce("t", data), transactional_id="id")
        code = int(answer.responses[0].partition_responses[0].error_code)
        sequence += not code
        return code

    def is_taken() -> bool:
        before = broker.taken()
        assert put() == 0
        return broker.taken() > before

    eventually(is_taken, what="the lane to take a request of the transaction")
    broker.acls.set(TOPICS)
    before = broker.taken()
    assert (put(), broker.taken()) == (ID_DENIED, before)


def test_a_quota_is_counted_and_its_client_waits(broker: Secured) -> None:
    large = batch(records([b"x" * 130_000]))
    assert broker.alice.produce("t", large).error_code == 0  # the topic's largest record is noted
    broker.warm("t")
    broker.limit("producer_byte_rate", 100_000.0)
    try:
        before = broker.taken()
        told = [broker.alice.ask(PRODUCE, 9, **produce("t", data)).throttle_time for data in (DATA, large)]
        assert [time.total_seconds() > 0.2 for time in told] == [False, True]
        assert broker.taken() == before + 2
    finally:
        broker.limit("producer_byte_rate", None)
    assert broker.is_taken("t")


READS = (*TOPICS, may(Operation.READ, "t"))


def awaits(broker: Secured, offset: int, **given: int) -> None:
    """Has the lane wait with a fetch of the client, as soon as nothing has to be asked before."""
    before = broker.fetched()
    broker.alice.send(FETCH, 12, **fetch([part("t", 0, offset)], **{"max_wait": 30_000, **given}))
    eventually(lambda: broker.fetched() > before, what="the lane to wait")


def told(broker: Secured) -> tuple[int, bytes]:
    answer = broker.alice.answer(FETCH, 12)[1].responses[0].partitions[0]
    return int(answer.error_code), bytes(answer.records or b"")


def test_what_may_be_read_is_taken_until_the_acls_change(broker: Secured) -> None:
    broker.acls.set(READS)
    end = broker.alice.stored("t", DATA) + 1
    broker.alice.fetch("t", end)  # what has to be asked is
    awaits(broker, end)
    broker.admin.stored("t", DATA)
    code, given = told(broker)
    assert (code, len(given)) == (0, len(DATA))
    broker.acls.set(TOPICS)
    before = broker.fetched()
    assert broker.alice.fetch("t", end).error_code == TOPIC_DENIED
    assert broker.fetched() == before


def test_the_right_to_read_is_lost_while_it_waits(broker: Secured) -> None:
    broker.acls.set(READS)
    end = broker.alice.stored("t", DATA) + 1
    broker.alice.fetch("t", end)
    awaits(broker, end)
    with broker.login("alice") as watching:
        Acls(broker.server.redis(), watching).set(TOPICS)
        assert watching.fetch("t", end).error_code == TOPIC_DENIED
    broker.admin.stored("t", DATA)
    assert told(broker) == (TOPIC_DENIED, b"")


def test_a_quota_of_fetches_is_counted_and_its_client_waits(broker: Secured) -> None:
    broker.acls.set(READS)
    large = batch(records([b"x" * 60_000]))
    end = broker.alice.stored("t", DATA) + 1
    broker.alice.fetch("t", end)
    broker.limit("consumer_byte_rate", 40_000.0)
    try:
        awaits(broker, end)
        broker.admin.stored("t", large)
        answer = broker.alice.answer(FETCH, 12)[1]
        assert answer.throttle_time.total_seconds() > 0.2
        records_given = answer.responses[0].partitions[0].records
        assert len(records_given) == len(large)
    finally:
        broker.limit("consumer_byte_rate", None)


def test_what_comes_with_a_fetch_over_its_quota_waits(broker: Secured) -> None:
    broker.acls.set(READS)
    offset = broker.alice.stored("t", batch(records([b"x" * 60_000])))
    broker.alice.fetch("t", offset)
    broker.limit("consumer_byte_rate", 80_000.0)
    before = broker.fetched()
    try:
        frame = broker.alice.request(FETCH, 12, **fetch([part("t", 0, offset)], 0))
        broker.alice.socket.sendall((len(frame).to_bytes(4, "big") + frame) * 4)
        answers, came = [], []
        for _ in range(4):
            answers.append(broker.alice.answer(FETCH, 12)[1])
            came.append(time.monotonic())
        muted = [answer.throttle_time.total_seconds() > 0 for answer in answers].index(True)
        assert muted < 3
        throttled = answers[muted].throttle_time.total_seconds()
        assert came[muted + 1] - came[muted] > throttled / 2, "what comes behind it waits"
        assert broker.fetched() == before + 3, "the first of those behind it is Python's"
    finally:
        broker.limit("consumer_byte_rate", None)
