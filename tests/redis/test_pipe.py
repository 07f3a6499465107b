"""The hot path's connection to Redis, fed with replies made here: no server. The transport is asyncio's, not ours."""

from __future__ import annotations

import asyncio
import itertools
import socket
import tempfile
from typing import Any, NamedTuple

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from ketch.errors import RedisError, StorageUnavailable
from ketch.redis.pipe import Pipe
from ketch.redis.question import Command, call, calls, keyed
from ketch.redis.resp import pack, parse
from tests.support.replies import Push, resp

LARGE = b"x" * 150_000  # more than the buffer's first size


class Transport(asyncio.Transport):
    """Keeps what is written; `abort` ends the connection at once."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.protocol: Pipe | None = None

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        self.written += b"".join(list_of_data)

    def abort(self) -> None:
        protocol, self.protocol = self.protocol, None
        if protocol is not None:
            protocol.connection_lost(None)


class Connected:
    """A pipe that believes in its connection.

    Attributes:
        pushes: what came out of band.
        lost: how often the pipe said that its connection is gone.
    """

    def __init__(self) -> None:
        self.pushes: list[Any] = []
        self.lost = 0
        self.pipe = Pipe(self._count, self.pushes.append)
        self.transport = Transport()
        self.transport.protocol = self.pipe
        self.pipe.connection_made(self.transport)

    def _count(self) -> None:
        self.lost += 1

    def send(self, payload: bytes | tuple[bytes, ...], replies: int = 1) -> asyncio.Future[bytes]:
        return self.pipe.send(Command(None, payload, replies))

    def feed(self, data: bytes) -> None:
        """As an event loop does it: into the buffer, as much as it takes, as often as need be."""
        while data and self.pipe.connected:
            buffer = self.pipe.get_buffer(len(data))
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            buffer.release()
            self.pipe.buffer_updated(size)
            data = data[size:]


class Asked(NamedTuple):
    """A payload: its replies, and the pushes that come before each of them."""

    replies: list[bytes]
    pushes: list[list[bytes]]

    @property
    def stream(self) -> bytes:
        return b"".join(b"".join(pushes) + reply for reply, pushes in zip(self.replies, self.pushes, strict=True))


values = st.recursive(
    st.none()
    | st.integers(-5, 10**12)
    | st.binary(max_size=20)
    | st.sampled_from(["OK", "QUEUED", b"", b"\r\n>1\r\n"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.binary(max_size=3), inner, max_size=3),
    max_leaves=8,
)
errors = st.sampled_from(["ERR wrong", "NOSCRIPT no script"]).map(ValueError)
replies = (values | errors | st.just(LARGE)).map(resp)
pushes = st.lists(values, min_size=1, max_size=3).map(lambda words: resp(Push(words)))


@st.composite
def asked(draw: st.DrawFn) -> Asked:
    made = draw(st.lists(replies, min_size=1, max_size=4))
    return Asked(made, [draw(st.lists(pushes, max_size=2)) for _ in made])


# What an event loop does next: sends a payload (0), sends one whose caller goes away (-1), or reads so many bytes.
steps = st.lists(st.sampled_from([0, 0, -1, 1, 2, 7, 100, 70_000]), max_size=12).map(lambda few: [*few, 0, 70_000])


@given(st.lists(asked(), max_size=12), st.lists(pushes, max_size=2), steps)
def test_every_future_gets_its_reply_however_the_stream_is_cut(
    payloads: list[Asked], after: list[bytes], steps: list[int]
) -> None:
    """Payloads are sent before their replies come, some while replies or pushes are half received; some callers go."""
    ends = [0, *itertools.accumulate(len(payload.stream) for payload in payloads)]
    before = [end + len(b"".join(payload.pushes[0])) for end, payload in zip(ends, payloads, strict=False)]
    stream = b"".join([*(payload.stream for payload in payloads), *after])

    async def run() -> None:
        connected, futures, fed, gone = Connected(), list[asyncio.Future[bytes]](), 0, set[int]()
        for step in itertools.cycle(steps):
            all_sent = len(futures) == len(payloads)
            if step > 0:
                end = min(fed + step, len(stream) if all_sent else before[len(futures)])
                connected.feed(stream[fed:end])
                fed = end
            elif not all_sent:
                futures.append(connected.send(b"x", len(payloads[len(futures)].replies)))
                if step < 0:
                    futures[-1].cancel()
                    gone.add(len(futures) - 1)
            elif fed == len(stream):
                break
        for n, (future, payload) in enumerate(zip(futures, payloads, strict=True)):
            assert n in gone or future.result() == payload.replies[-1]
        told = [push for payload in payloads for pushes in payload.pushes for push in pushes] + after
        assert connected.pushes == [parse(push) for push in told]
        assert connected.pipe.connected
        connected.transport.abort()

    asyncio.run(run())


@given(st.lists(st.lists(st.sampled_from([b"a", b"bc", b"d" * 20_000]), max_size=5), max_size=5))
def test_commands_are_written_in_their_order(turns: list[list[bytes]]) -> None:
    """Large ones are written at once, small ones of the same turn of the event loop together."""

    async def run() -> bytes:
        connected = Connected()
        for turn in turns:
            for n, payload in enumerate(turn):
                connected.send(payload if n % 2 else (payload, b"|"))
            await asyncio.sleep(0)
        connected.transport.abort()
        return connected.transport.written

    expected = b"".join(payload + (b"" if n % 2 else b"|") for turn in turns for n, payload in enumerate(turn))
    assert asyncio.run(run()) == expected


def test_replies_and_pushes_are_taken_as_they_come_in() -> None:
    async def run() -> None:
        connected = Connected()
        for words in ("one", "two"):
            connected.pipe.post(Command(None, words.encode()), connected.pushes.append)
        connected.feed(resp(1) + resp(Push(["a"])) + resp(2) + resp(Push(["b"])))
        assert connected.pushes == [resp(1), [b"a"], resp(2), [b"b"]]  # and the event loop has not turned
        connected.transport.abort()

    asyncio.run(run())


def test_what_takes_a_reply_may_fail_and_may_send(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        connected, taken = Connected(), list[object]()

        def fails(reply: object) -> None:
            raise ValueError("a mistake")

        def sends(reply: object) -> None:
            taken.append(reply)
            connected.pipe.post(Command(None, b"more", 3), taken.append)

        connected.pipe.post(Command(None, b"x"), fails)
        connected.pipe.post(Command(None, b"y"), sends)
        connected.feed(resp(1) + resp(2))
        assert taken == [resp(2)]
        connected.feed(resp("OK") + resp("QUEUED") + resp([7]))
        assert taken == [resp(2), resp([7])]
        assert connected.pipe.connected
        connected.pipe.post(Command(None, b"z"), taken.append)
        connected.transport.abort()
        assert isinstance(taken[-1], StorageUnavailable)

    asyncio.run(run())
    assert "a mistake" in caplog.text


def test_a_lost_connection_fails_all_that_wait() -> None:
    async def run() -> None:
        connected = Connected()
        answered, half, later = (connected.send(b"x", replies) for replies in (1, 3, 1))
        connected.feed(resp("OK") + resp("QUEUED"))
        connected.transport.abort()
        assert answered.result() == resp("OK")
        for future in (half, later):
            with pytest.raises(StorageUnavailable):
                future.result()
        assert (connected.lost, connected.pipe.connected) == (1, False)
        with pytest.raises(StorageUnavailable):
            connected.send(b"x")

    asyncio.run(run())


@pytest.mark.parametrize("sent", [b"HTTP/1.1 400 Bad Request\r\n", b"*x\r\n", b":1\r\n\r\n", b"$-2\r\n"])
def test_what_is_not_resp_ends_the_connection(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        connected = Connected()
        futures = [connected.send(b"x") for _ in range(3)]
        connected.feed(sent)
        with pytest.raises(StorageUnavailable):
            futures[-1].result()
        assert connected.lost == 1

    asyncio.run(run())
    assert "Redis sent what is not RESP" in caplog.text


def test_a_redis_that_hangs_is_left() -> None:
    async def run() -> None:
        connected = Connected()
        waiting = connected.send(b"x")
        await connected.pipe.watch(0.01)  # ends with the connection
        with pytest.raises(StorageUnavailable):
            waiting.result()

    asyncio.run(run())


def test_errors_are_raised_in_place_of_replies() -> None:
    async def run() -> None:
        connected = Connected()
        asked = asyncio.gather(
            connected.pipe.ask(call(b"k", "GET", "k")),
            connected.pipe.ask(calls([keyed("GET", "a"), keyed("GET", "b")])),
            connected.pipe.ask(call(b"k", "GET", "k")),
            connected.pipe.ask(call(b"k", "GET", "k")),
            return_exceptions=True,
        )
        await asyncio.sleep(0)
        wrong, away = resp(ValueError("WRONGTYPE it is a list")), resp(ValueError("LOADING the data"))
        connected.feed(resp(b"v") + resp(1) + resp([None]) + wrong + away)
        value, several, refused, unavailable = await asked
        assert (value, several) == (b"v", [1, [None]])
        assert isinstance(refused, RedisError)
        assert isinstance(unavailable, StorageUnavailable)
        assert connected.transport.written == pack("GET", "k") + pack("GET", "a") + pack("GET", "b") + 2 * pack(
            "GET", "k"
        )
        connected.transport.abort()

    asyncio.run(run())


def test_writers_wait_while_the_socket_is_full() -> None:
    async def run() -> None:
        connected = Connected()
        assert not connected.pipe.behind
        connected.pipe.pause_writing()
        assert connected.pipe.behind
        drained = asyncio.create_task(connected.pipe.drained())
        await asyncio.sleep(0)
        assert not drained.done()
        connected.transport.abort()  # as well as resume_writing: nobody is to wait for a socket that is gone
        await drained

    asyncio.run(run())


def test_a_buffer_that_one_reply_has_blown_up_is_given_back() -> None:
    async def run() -> None:
        connected, large = Connected(), resp(b"x" * (5 << 20))
        future = connected.send(b"x")
        connected.feed(large)
        assert future.result() == large
        assert len(connected.pipe.get_buffer(0)) == 1 << 16
        connected.transport.abort()

    asyncio.run(run())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_unix_socket_has_a_larger_send_buffer(run: Any) -> None:
    def size(connection: socket.socket) -> int:
        return connection.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)

    async def check() -> None:
        with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{short}/s")
            listener.listen()
            before, pipe = size(listener), Pipe(lambda: None)
            transport, _ = await asyncio.get_running_loop().create_unix_connection(lambda: pipe, f"{short}/s")
            assert size(transport.get_extra_info("socket")) > before
            pipe.close()

    run(check())
