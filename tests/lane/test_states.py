"""Each state of a request of the lane, and each event that ends it otherwise than the lane thought."""

from __future__ import annotations

import threading

from tests.support.batches import batch, records
from tests.support.http import metrics
from tests.support.kafka import METADATA, PRODUCE, Kafka, produce
from tests.support.ketch import KetchServer, eventually

NOT_ENOUGH_REPLICAS, STORAGE_ERROR = 19, 56
TAKEN, BACK = ("ketch_lane_requests_total", "produce"), ("ketch_lane_requests_taken_back_total", "produce")
DATA = batch(records([b"a", b"b"]))


class Bench:
    """A broker with the lane, a client, and a topic that the lane takes batches for."""

    def __init__(self, server: KetchServer, partitions: int = 2) -> None:
        self.server, self.redis, self.partitions = server, server.redis(), partitions
        self.kafka = Kafka(server.port)
        self.kafka.create("t", partitions)
        self.warm()

    def warm(self) -> None:
        """Until the lane takes a request to each partition."""
        for partition in range(self.partitions):
            eventually(lambda partition=partition: self._is_taken(partition), what="the lane to take a request")

    def restart(self) -> None:
        """Stops the broker, and starts it with the same data and nothing in memory."""
        assert self.server.stop() == 0
        self.server.start()
        self.kafka, self.redis = Kafka(self.server.port), self.server.redis()

    def _is_taken(self, partition: int) -> bool:
        before = self.count(TAKEN)
        return self.kafka.produce("t", DATA, partition=partition).error_code == 0 and self.count(TAKEN) > before

    def count(self, what: tuple[str, str]) -> float:
        return metrics(self.server).get(what, 0.0)

    def sent(self, n: int = 1, data: bytes = DATA, **given: int) -> list[int]:
        """Sends requests while Redis takes no writes, until the lane has them; the numbers of their answers."""
        before = self.count(TAKEN)
        numbers = [self.kafka.send(PRODUCE, 9, **produce("t", data, **given)) for _ in range(n)]
        eventually(lambda: self.count(TAKEN) == before + n, what="the lane to have sent them")
        return numbers

    def pause(self, ms: int = 60_000) -> None:
        self.redis.execute_command("CLIENT", "PAUSE", ms, "WRITE")

    def go_on(self) -> None:
        self.redis.execute_command("CLIENT", "UNPAUSE")

    def cut(self) -> None:
        """Ends the broker's connection of appends, which has tracking on."""
        for client in self.redis.client_list():
            if client["name"] == "ketch" and "t" in client["flags"]:
                self.redis.client_kill_filter(_id=client["id"])

    def codes(self, numbers: list[int]) -> list[int]:
        codes = []
        for number in numbers:
            got, answer = self.kafka.answer(PRODUCE, 9)
            assert got == number
            codes.append(int(answer.responses[0].partition_responses[0].error_code))
        return codes

    def stored(self) -> int:
        return len(self.kafka.read_all("t"))


def test_all_is_stored(bench: Bench) -> None:
    before = bench.stored()
    bench.pause()
    numbers = bench.sent(5)
    bench.go_on()
    assert bench.codes(numbers) == [0] * 5
    assert (bench.stored() - before, bench.count(BACK)) == (10, 0)


def test_another_writer(bench: Bench) -> None:
    """It comes first: the module puts the batches behind its entry, and the answers say where."""
    before = bench.stored()
    bench.pause()
    stranger = threading.Thread(target=bench.server.redis().xadd, args=("korvet:stream:t:0", {"value": "hello"}))
    stranger.start()
    eventually(lambda: bench.redis.info("clients")["blocked_clients"] == 1, what="the other writer to wait")
    numbers = bench.sent(3)
    bench.go_on()
    assert bench.codes(numbers) == [0] * 3
    stranger.join()
    assert (bench.stored() - before, bench.count(BACK)) == (7, 3)
    bench.warm()


def test_the_connection_to_redis_is_lost(bench: Bench) -> None:
    bench.pause()
    numbers = bench.sent(3)
    bench.cut()
    assert bench.codes(numbers) == [STORAGE_ERROR] * 3
    assert bench.count(BACK) == 3
    bench.go_on()
    eventually(lambda: bench.kafka.produce("t", DATA).error_code == 0, what="the broker to be back")
    bench.warm()


def test_what_follows_a_refused_batch(bench: Bench) -> None:
    """It is told to come again, not that there is a gap: `broker.refusals` knows the lane's batches, too."""

    def two_from(sequence: int) -> bytes:
        return batch(records([b"a", b"b"]), producer_id=7, producer_epoch=0, base_sequence=sequence)

    assert bench.kafka.produce("t", two_from(0)).error_code == 0
    bench.pause()
    numbers = bench.sent(data=two_from(2))
    bench.cut()
    assert bench.codes(numbers) == [STORAGE_ERROR]
    bench.go_on()
    eventually(lambda: bench.kafka.produce("t", DATA).error_code == 0, what="the broker to be back")
    answers = [bench.kafka.produce("t", two_from(sequence)).error_code for sequence in (4, 2, 4)]
    assert answers == [NOT_ENOUGH_REPLICAS, 0, 0]


def test_the_deadline_comes(bench: Bench) -> None:
    before = bench.stored()
    bench.pause()
    numbers = bench.sent(2, timeout=0)
    assert bench.codes(numbers) == [STORAGE_ERROR] * 2
    assert bench.count(BACK) == 2
    bench.go_on()
    eventually(lambda: bench.stored() == before + 4, what="what was sent to be stored")
    bench.warm()


def test_the_client_leaves(bench: Bench) -> None:
    before = bench.stored()
    bench.pause()
    bench.sent(3)
    bench.kafka.close()
    bench.go_on()
    bench.kafka = Kafka(bench.server.port)
    eventually(lambda: bench.stored() == before + 6, what="what was sent to be stored")
    eventually(lambda: bench.count(("ketch_queued_request_bytes", "")) == 0, what="its bytes to be given back")


def test_acks_0(bench: Bench) -> None:
    before = bench.stored()
    bench.pause()
    bench.sent(3, acks=0)
    assert bench.kafka.metadata("t").topics[0].error_code == 0  # its response waits for none of them
    bench.go_on()
    eventually(lambda: bench.stored() == before + 6, what="what was sent to be stored")
    eventually(lambda: bench.count(("ketch_queued_request_bytes", "")) == 0, what="its bytes to be given back")


def test_acks_0_and_the_connection_to_redis_is_lost(bench: Bench) -> None:
    bench.pause()
    bench.sent(1, acks=0)
    bench.cut()
    assert bench.kafka.closed()
    bench.go_on()


def test_a_request_of_another_kind_between(bench: Bench) -> None:
    """Its answer waits for those of the lane before it, and those behind it wait for it."""
    bench.pause()
    numbers = bench.sent(2)
    bench.kafka.send(3, 9, topics=[{"name": "t"}])
    later = bench.kafka.send(PRODUCE, 9, **produce("t", DATA))
    bench.go_on()
    assert bench.codes(numbers) == [0, 0]
    assert bench.kafka.answer(3, 9)[0] == numbers[-1] + 1
    assert bench.codes([later]) == [0]


def test_requests_behind_one_of_another_kind(bench: Bench) -> None:
    """The lane takes those that came while the worker had another request: else one such request would slow a client
    down for as long as it sends faster than it is served."""
    before, kafka = bench.count(TAKEN), bench.kafka
    metadata = kafka.request(METADATA, 9, topics=[{"name": "t"}])
    stream = [metadata] + [kafka.request(PRODUCE, 9, **produce("t", DATA)) for _ in range(3)]
    kafka.socket.sendall(b"".join(len(frame).to_bytes(4) + frame for frame in stream))
    last = kafka.correlation_id
    assert kafka.answer(METADATA, 9)[0] == last - 3
    assert bench.codes([last - 2, last - 1, last]) == [0] * 3
    assert bench.count(TAKEN) == before + 3


def test_a_large_request(bench: Bench) -> None:
    """Most of it is read to where it stays."""
    data, kafka = batch(records([bytes(300_000), bytes(200_000)])), bench.kafka
    stream = [kafka.request(PRODUCE, 9, **produce("t", each)) for each in (data, DATA, data, data)]
    sent = b"".join(len(frame).to_bytes(4) + frame for frame in stream)
    last = kafka.correlation_id
    for at in range(0, len(sent), 70_001):
        kafka.socket.sendall(sent[at : at + 70_001])
    assert bench.codes([last - 3, last - 2, last - 1, last]) == [0] * 4
    stored = [len(record.value or b"") for record in kafka.read_all("t")]
    assert stored[-8:] == [300_000, 200_000, 1, 1, 300_000, 200_000, 300_000, 200_000]


def test_the_broker_stops_with_requests_out(bench: Bench) -> None:
    before = bench.stored()
    bench.pause()
    numbers = bench.sent(3)
    bench.go_on()
    assert bench.server.stop() == 0
    assert bench.codes(numbers) == [0] * 3
    bench.server.start()
    bench.kafka = Kafka(bench.server.port)
    assert bench.stored() == before + 6
