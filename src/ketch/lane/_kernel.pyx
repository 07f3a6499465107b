# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The lane in Cython; :mod:`ketch.lane` says what it does, and has the table of its states and hand-overs.

What it works on are the objects that Python works on, too: `AppendState`, a connection's line of responses, the pipe's
line of replies. Of its own it has `Answer`, a request, and `Flight`, a batch; both stand in those lines. Bytes are the
business of csrc/, which knows no Python.
"""

import time
from contextlib import suppress
from functools import partial

cimport cython
from cpython cimport array
from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.math cimport fabs, rint
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp
from posix.time cimport CLOCK_REALTIME, clock_gettime, clockid_t, timespec

from crc32c import crc32c

from ketch import metrics
from ketch.connections.room import READS
from ketch.errors import KetchError, StorageUnavailable
from ketch.log.appending.notes import CODEC_NAMES, fetch_codec
from ketch.log.appending.producers import Appended, Sequenced
from ketch.log.appending.state import Append as PythonAppend, Mode
from ketch.store.append import appends, module
from ketch.records import largest_record
from ketch.redis.cluster import ClusterLink
from ketch.redis.question import Command
from ketch.redis.slots import slot
from ketch.security.acls import Operation, ResourceType
from ketch.security.quotas import Quota
from ketch.store.layouts.batch import WholeBatch
from ketch.store.layouts.record import RecordSet
from ketch.store.offsets import LAST_OFFSET
from ketch.metrics.tally import LATENCY
from ketch.store.xinfo import StreamInfo

cdef extern from "Python.h":
    char* PyByteArray_AS_STRING(object)

cdef extern from *:
    """
    /* The clock that Python's time.monotonic reads: macOS has one that stands still while the machine sleeps. */
    #ifdef __APPLE__
    #define STEADY CLOCK_UPTIME_RAW
    #else
    #define STEADY CLOCK_MONOTONIC
    #endif
    """
    clockid_t STEADY

cdef extern from "csrc/request.h":
    enum:
        HEADER_SIZE, CHECKED_FROM, IDS, CODEC, TRANSACTIONAL

    ctypedef struct Span:
        const uint8_t* at
        int64_t size

    ctypedef struct Out:
        uint8_t* data
        int64_t size
        int64_t room
        bint failed

    ctypedef struct BatchHead:
        int64_t base_timestamp, max_timestamp, producer
        int32_t base_sequence, count
        uint32_t crc
        int16_t attributes, epoch

    ctypedef struct Part:
        int32_t index
        Span batch
        BatchHead head

    ctypedef struct Section:
        Span name
        int first, count

    ctypedef struct ProduceRequest:
        int16_t version, acks
        int32_t correlation, timeout
        Span client, transaction
        int sections, parts
        Section* section
        Part* part

    bint recognise(const uint8_t* frame, int64_t size, ProduceRequest* request) nogil
    void put(Out* out, const void* data, int64_t size) nogil
    uint16_t be16(const uint8_t* at) nogil
    uint32_t be32(const uint8_t* at) nogil

cdef extern from "csrc/redis.h":
    ctypedef struct EntryId:
        uint64_t ms, seq

    ctypedef struct Frame:
        Span head, limit, shape, tail
        bint records

    ctypedef struct Append:
        EntryId expected, first
        int32_t count
        int64_t producer, now, base_timestamp
        int32_t epoch, last_sequence, first_sequence, end_sequence

    void put_append(Out* out, const Frame* frame, const Append* append, int64_t size) nogil
    int64_t landed_reply(const uint8_t* at, const uint8_t* end) nogil

cdef extern from "csrc/response.h":
    void begin_response(Out* out, int16_t version, int32_t correlation, int sections) nogil
    void put_section(Out* out, int16_t version, Span name, int parts) nogil
    void put_part(Out* out, int16_t version, int32_t index, int64_t base, int64_t log_start) nogil
    void end_section(Out* out, int16_t version) nogil
    void end_response(Out* out, int16_t version, int32_t throttled, int64_t start) nogil

cdef extern from "csrc/fetch.h":
    enum:
        FETCH, FETCH_IDS, FETCH_ZSTD, WANTED_MAX, BATCH_BEGIN

    ctypedef struct Wanted:
        int32_t index, epoch, most
        int64_t offset

    ctypedef struct FetchRequest:
        int16_t version
        int32_t correlation, wait, least, most, session, epoch
        Span client
        bint committed
        int sections, parts
        Section* section
        Wanted* part

    bint recognise_fetch(const uint8_t* frame, int64_t size, FetchRequest* request) nogil
    void begin_fetched(Out* out, int16_t version, int32_t correlation, int32_t throttled, int32_t session,
                       int topics) nogil
    void put_fetched_topic(Out* out, int16_t version, Span name, int parts) nogil
    void put_fetched(Out* out, int16_t version, bint committed, int32_t index, int64_t end, int64_t stable,
                     int64_t start, int64_t size) nogil
    void put_batch_begin(Out* out, int64_t base, int64_t size) nogil
    void end_fetched_part(Out* out, int16_t version) nogil
    void end_fetched_topic(Out* out, int16_t version) nogil
    void end_fetched(Out* out, int16_t version, int64_t beside) nogil

cdef enum:
    REPLIES = 4  # MULTI, KETCH.APPEND, XLEN, EXEC
    ZSTD = 4
    ZSTD_SINCE = 7  # see `broker.handlers.produce`
    RECORD_MIN = 7  # bytes of the smallest record
    COMMAND_SIZE = 128  # bytes of an XADD around its record, see `store.layouts.record`
    SIZE_OF = 1000  # records that a topic's average is about, see `TopicNotes`
    ONE_PIECE = 16384  # bytes of a batch up to which one copy is cheaper than a write of its own
    MANY = 262144  # bytes of commands that are written before the next request is looked at
    BOUNDS_MAX = 32  # of a histogram
    SEQUENCE_MASK = 0x7fffffff

cdef int64_t FAR = <int64_t>1 << 62  # ms; no clock and no timestamp comes there
cdef int64_t LAST = LAST_OFFSET
cdef object OURS = Mode.OURS
cdef object PRODUCED = Quota.PRODUCE, FETCHED = Quota.FETCH
cdef object READ = Operation.READ, WRITE = Operation.WRITE, TOPIC = ResourceType.TOPIC, TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
cdef bytes AS_EXPECTED = b":1\r\n"
cdef int64_t MOST_ENTRIES = appends.MAX_SCRIPT_ENTRIES
cdef double LEAST_TIMEOUT = 1.0  # s, see `broker.handlers.produce`


cdef Span span(bytes data):
    cdef Span found
    found.at = <const uint8_t*>PyBytes_AS_STRING(data)
    found.size = PyBytes_GET_SIZE(data)
    return found


@cython.final
cdef class Shape:
    """What is the same in every append of one kind to a partition."""

    cdef tuple parts  # keeps the bytes
    cdef Frame frame

    def __init__(self, state, bint records, bint transactional):
        shape, varying = (("records",), 2) if records else (("entry", "batch"), 0)
        transactions = state.transaction_keys.transactions if transactional else None
        self.parts = tuple(module.parts(state.keys, state.numbering, shape, varying, transactions))
        self.frame.head, self.frame.limit = span(self.parts[0]), span(self.parts[1])
        self.frame.shape, self.frame.tail = span(self.parts[2]), span(self.parts[3])
        self.frame.records = records


cdef inline int64_t clock_ms():
    """As `ketch.clock.now_ms`."""
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return now.tv_sec * 1000 + now.tv_nsec // 1000000


cdef inline double clock():
    """As `time.monotonic`."""
    cdef timespec now
    clock_gettime(STEADY, &now)
    return now.tv_sec + now.tv_nsec * 1e-9


cdef inline bytes text(Span of):
    return PyBytes_FromStringAndSize(<const char*>of.at, of.size)


cdef inline int64_t number(object value) except? -2:
    """A number of Python's; one that is far too large is as good as FAR."""
    return min(value, FAR)


@cython.final
cdef class Track:
    """One partition: what is fixed of it, and the objects that appends to it change."""

    cdef object partition, state, bounds, sizes
    cdef bytes stream
    cdef Shape plain, transactional
    cdef bint records  # an entry is a record
    cdef int bits, dense, slot
    cdef int64_t floor
    cdef uint64_t serial  # of the request that was last looked at; a partition may be in it only once

    def __init__(self, partition):
        state = self.state = partition.state
        self.partition, self.bounds, self.sizes = partition, partition.bounds, partition.sizes
        self.stream = state.keys.stream
        self.slot = slot(self.stream)
        self.bits, self.dense = state.numbering.bits, state.numbering.dense
        self.floor = state.floor
        self.records = state.layout.entry_is_record
        self.plain, self.transactional = Shape(state, self.records, False), Shape(state, self.records, True)


@cython.final
cdef class Series:
    """A histogram of metrics; this is where its numbers are."""

    cdef array.array counts, total

    def __init__(self, histogram):
        self.counts, self.total = histogram.counts, histogram.total


@cython.final
cdef class Known:
    """One topic as some requests name it: what its configs want of a batch, parsed."""

    cdef object key, name, topic, cached, noted
    cdef Series latency
    cdef bytes wire  # its name, or the bytes of its id, as a request has it
    cdef double since
    cdef dict tracks
    cdef uint64_t serial  # of the request that was last looked at; a topic may be in it only once
    cdef bint common  # whether the lane takes its batches at all
    cdef bint records  # an entry is a record
    cdef int64_t largest_batch, before, after, lead, largest, average
    cdef int codec, copies, seen  # codec: -1 for the producer's; seen: that of late, where it is noted, -1 for another
    cdef bint notes_codec

    def __init__(self, bytes wire, object key, object cached, object noted):
        cdef object topic = cached[1]
        cdef object intake = topic.intake
        self.wire, self.key, self.cached, self.topic, self.noted = wire, key, cached, topic, noted
        self.name, self.since, self.tracks = topic.name, cached[0], {}
        self.latency = Series(metrics.append_latency[topic.name])
        self.records = intake.layout.entry_is_record
        self.common = not (intake.log_append_time or intake.full or intake.values or intake.keys)
        self.largest_batch, self.copies = intake.max_bytes, intake.copies
        self.before, self.after = number(intake.before), number(intake.after)
        self.codec = -1 if intake.codec is None else int(intake.codec)
        self.lead, self.largest, self.average = topic.timestamp_lead, topic.largest_record, topic.message_bytes
        self.notes_codec = topic.configs["compression.type"] == "producer"
        self.seen = CODEC_NAMES.index(topic.compression_seen) if topic.compression_seen in CODEC_NAMES else -1


cdef int64_t largest(Known known, Part* part) except -1:
    """As `Payload.largest`."""
    if not known.records:
        return part.batch.size
    records = PyMemoryView_FromMemory(<char*>part.batch.at + HEADER_SIZE, part.batch.size - HEADER_SIZE, PyBUF_READ)
    return largest_record(records, part.head.count)


@cython.final
@cython.freelist(256)
cdef class Flight:
    """One batch that may be sent, and then was. It stands in the partition's `flying`, and takes the reply.

    It has the attributes of an `Append` that `AppendState.landed` looks at.
    """

    cdef Track track
    cdef Known known  # of the first batch of a topic in its request; None for those behind it
    cdef Answer answer
    cdef bytes data
    cdef Append append
    cdef object node  # of a cluster, to which it is sent
    cdef bint transactional, answered  # answered: by that node, and the cluster's link has it
    cdef int64_t offset, begin
    cdef int64_t weight, size, entries  # as of a `Payload`
    cdef int64_t max_timestamp
    cdef int parts  # as many batches of the topic the request has
    cdef int32_t index
    cdef double average
    cdef tuple follows
    cdef readonly tuple last
    cdef readonly object future, batch
    cdef object sender  # the producer's state; None for a batch without one

    @property
    def expected(self):
        return self.follows

    @property
    def producer(self):
        """It is asked for to know whether a transaction has begun."""
        return self.sequenced() if self.transactional else None

    def __call__(self, reply):
        """Takes the reply where it was not whole in one read, or is another one, or there is none."""
        cdef Lane lane = self.answer.lane
        cdef bint expected = isinstance(reply, bytes) and reply[4:8] == AS_EXPECTED
        if self.node is not None and not self.answered and (not expected or lane.detours):
            self.answered = True
            lane.driver.answered(self.track.slot, self.node, self.command(&lane.response), self, reply)
            return
        if expected:
            self.land(lane)
        else:
            if self.answer.taken_back is False:
                self.answer.take_back(lane, time.monotonic())
            self.track.partition.appender.resume(self.plain(), reply)
        lane.deliver()

    cdef Frame* frame(self):
        return &(self.track.transactional if self.transactional else self.track.plain).frame

    cdef object command(self, Out* out):
        """As it was sent."""
        cdef int64_t skipped = HEADER_SIZE if self.track.records else 0
        out.size, out.failed = 0, False
        put_append(out, self.frame(), &self.append, PyBytes_GET_SIZE(self.data) - skipped)
        if out.failed:
            raise MemoryError
        head = PyBytes_FromStringAndSize(<char*>out.data, out.size)
        return Command(self.track.stream, (head, memoryview(self.data)[skipped:], text(self.frame().tail)), REPLIES)

    cdef object plain(self):
        """The same as Python would have sent it."""
        entry = PythonAppend(self.whole(), self.sequenced(), self.future)
        entry.base, entry.begin = self.offset, self.begin
        entry.expected, entry.last = self.follows, self.last
        entry.read = appends.module_reader(self.track.state.numbering, self.offset)
        return entry

    cdef object sequenced(self):
        cdef Append* of = &self.append
        return None if of.producer < 0 else Sequenced(of.producer, of.epoch, of.first_sequence, self.transactional)

    cdef object whole(self):
        """The batch as the layout's `payload` makes it."""
        cdef Append* of = &self.append
        if self.batch is None:
            if self.track.records:
                transaction = b"%d:%d" % (of.producer, of.epoch) if self.transactional else b""
                records = memoryview(self.data)[HEADER_SIZE:]
                self.batch = RecordSet(records, of.count, of.base_timestamp, self.max_timestamp, None, transaction)
            else:
                batch = WholeBatch.__new__(WholeBatch)
                batch.data, batch.count, batch.timestamp = self.data, of.count, None
                self.batch = batch
        return self.batch

    cdef int land(self, Lane lane) except -1:
        """It is stored where it was sent to. As `Appender._landed`, and `AppendState.landed` of a state in any mode."""
        cdef Track track = self.track
        cdef Answer answer = self.answer
        cdef object state = track.state
        cdef list flying = state.flying
        cdef double size = <double>self.size / self.entries, average
        assert flying[0] is self
        del flying[0]
        info = self.follow(state)
        average = track.sizes.average
        track.sizes.average = max(size, average + (size - average) / 8)
        if info is not None:
            lane.newest.put(track.stream, info.lineage, (self.begin, self.offset, self.whole()))
        if not flying and (state.waiting or state.repeated):
            track.partition.appender.pump()
        self.answer = None
        if not answer.taken_back:
            if lane.gate.awaited is None:
                lane.gate.used -= self.weight
            else:
                lane.gate.give(self.weight)
            answer.missing -= 1
            if answer.missing == 0:
                answer.finish(lane)
        return 0

    cdef object follow(self, object state):
        """What is known of the stream now."""
        info = state.info
        if (state.listeners is not None or self.transactional or info is None or info.first is None
                or info.last != self.follows):
            self.whole()
            return state.landed(self, self.offset, True)
        if not self.future.done():
            self.future.set_result(self.offset)
        state.exists = True
        follower = StreamInfo.__new__(StreamInfo)
        follower.length, follower.last, follower.first = info.length + self.entries, self.last, info.first
        follower.added = None if info.added is None else info.added + self.entries
        follower.first_batch, follower.entry_bytes = info.first_batch, info.entry_bytes
        follower.lineage = info.lineage
        state.info = follower
        return follower


@cython.final
@cython.freelist(256)
cdef class Answer:
    """One request. It stands in its connection's line of responses, see `broker.places.Response`."""

    cdef Lane lane
    cdef object connection
    cdef list flights
    cdef int missing, sections
    cdef bint taken_back  # Python makes the answer
    cdef double deadline, made_at
    cdef tuple known  # its topics, where all its batches are stored
    cdef public object request  # where Python makes the answer
    cdef readonly double received, begun
    cdef readonly int version, correlation_id, acks
    cdef readonly int64_t size
    cdef readonly bint ready
    cdef readonly object made
    cdef readonly list parts  # see `broker.api.Sent`
    cdef readonly object transactional_id, client_id
    cdef readonly double left

    api_key = 0

    def set(self, made):
        """See `broker.places.Response`."""
        self.made, self.ready, self.made_at = made, True, clock()

    def done(self, double now):
        """Notes how long it took, see `broker.timekeeper`."""
        if self.request is not None:
            self.request.broker.timekeeper.note(self.request, self.made_at, now)
        else:
            self.lane.note(self, now)

    cdef int finish(self, Lane lane) except -1:
        """Every batch is stored."""
        cdef int32_t throttled = 0
        if lane.quotas.in_force:
            throttled = self.connection.throttle(PRODUCED, self.client_id, self.size - 4)
        if self.acks != 0:
            self.made, self.ready = [self.written(lane, throttled)], True
        lane.live.discard(self)
        self.made_at = clock()
        self.known = tuple([(<Flight>flight).known for flight in self.flights if (<Flight>flight).known is not None])
        self.flights = None
        lane.finished.append(self)
        return 0

    cdef bytes written(self, Lane lane, int32_t throttled):
        cdef Out* out = &lane.response
        cdef Flight flight
        cdef bint behind = False
        out.size, out.failed = 0, False
        begin_response(out, self.version, self.correlation_id, self.sections)
        for flight in self.flights:
            if flight.known is not None:
                if behind:
                    end_section(out, self.version)
                put_section(out, self.version, span(flight.known.wire), flight.parts)
                behind = True
            put_part(out, self.version, flight.index, flight.offset, flight.track.bounds.log_start)
        end_section(out, self.version)
        end_response(out, self.version, throttled, 0)
        if out.failed:
            raise MemoryError
        return PyBytes_FromStringAndSize(<char*>out.data, out.size)

    cdef int take_back(self, Lane lane, double now) except -1:
        """Python waits for its batches, and makes the answer."""
        cdef Flight flight
        cdef Known known = None
        parts = []
        self.taken_back = True
        lane.live.discard(self)
        for flight in self.flights:
            known = known if flight.known is None else flight.known
            if flight.answer is not None:
                flight.future.add_done_callback(partial(lane.gate.give, flight.weight))
            producer = flight.sequenced() if flight.transactional else None
            parts.append((
                known.key, flight.index, flight.track.partition, flight.future, flight.whole(), producer, flight.data))
        self.flights = None
        self.parts, self.left = parts, max(0.0, self.deadline - now)
        lane.taken_back["produce"] += 1
        self.connection.take_back(self)
        return 0


@cython.final
cdef class Lane:
    """The lane of one broker. `take` and `take_frame` are what connections call, `_replies` is what the pipe does.

    Args:
        broker: see `ketch.lane.Host`.
        loop: the running event loop.
        coin: whether only every other request is taken, by chance.
    """

    cdef object broker, log, topics, watcher, states, newest, gate, notes, quotas, create_future, call_later
    cdef object rights  # of the connection that is looked at; None where there is no authorizer
    cdef object driver, pipe  # pipe: what `send` writes to
    cdef object detours  # of a cluster, by slot; None where there is one Redis
    cdef int64_t largest  # bytes of a request
    cdef Fetches fetches
    cdef bint coin, replying  # replying: replies are being taken
    cdef uint64_t random, serial
    cdef dict known
    cdef set live
    cdef list finished, entries, pieces
    cdef Out commands, response
    cdef ProduceRequest request
    cdef object timer
    cdef double due
    cdef object requests, messages_in, bytes_in, taken, taken_back  # counts of metrics
    cdef object timekeeper
    cdef Series total, queue, redis, sending  # of all its requests
    cdef double slow_after
    cdef double bounds[BOUNDS_MAX]

    def __init__(self, broker, loop, bint coin):
        self.broker, self.log, self.coin = broker, broker.log, coin
        self.topics, self.watcher, self.newest = self.log.topics, self.log.watcher, self.log.newest
        self.driver = self.watcher.driver
        self.detours = self.driver.detours if isinstance(self.driver, ClusterLink) else None
        self.states, self.gate, self.notes = self.watcher.states, broker.inflated, broker.topic_notes
        self.quotas = broker.quotas
        self.create_future, self.call_later = loop.create_future, loop.call_later
        self.requests, self.messages_in, self.bytes_in = (
            metrics.requests.counts, metrics.messages_in.counts, metrics.bytes_in.counts)
        self.taken, self.taken_back = metrics.lane_taken.counts, metrics.lane_taken_back.counts
        times = metrics.times("produce")
        self.total, self.queue = Series(times.total), Series(times.queue)
        self.redis, self.sending = Series(times.redis), Series(times.send)
        self.timekeeper, self.slow_after = broker.timekeeper, broker.timekeeper.slow_after
        for n, bound in enumerate((*LATENCY, float("inf"))):
            self.bounds[n] = bound
        self.random = time.time_ns() | 1
        self.known, self.live = {}, set()
        self.finished, self.entries, self.pieces = [], [], []
        self.fetches = Fetches(self, loop)

    def __dealloc__(self):
        free(self.commands.data)
        free(self.response.data)

    # -- requests

    def take(self, connection, bytes data, double now, int64_t room, int64_t most):
        """Takes whole requests from the front of what a connection has received; how many bytes these are.

        Args:
            room: how many requests the connection may have taken up now.
            most: bytes of the largest request.
        """
        cdef const uint8_t* at = <const uint8_t*>PyBytes_AS_STRING(data)
        cdef int64_t size = PyBytes_GET_SIZE(data), pos = 0, length
        cdef int became
        if not self.is_open(connection):
            return 0
        try:
            while room > 0 and size - pos >= 4:
                length = <int32_t>be32(at + pos)
                if length < 0 or length > most or length > size - pos - 4:
                    break
                became = self.frame(connection, at + pos + 4, length, now)
                if became == LEFT:
                    break
                pos += 4 + length
                room -= 1
                if became == AWAITED:
                    break
                if self.finished:  # a fetch was answered: its client may be slow, or over its quota from now on
                    self.deliver()
                    room = connection.room
                if self.commands.size > MANY:
                    self.send()
        finally:
            self.send()
        self.deliver()
        return pos

    def take_frame(self, connection, bytes frame, double now):
        """Takes a request that is whole, or leaves it."""
        if not self.is_open(connection):
            return False
        try:
            became = self.frame(connection, <const uint8_t*>PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame), now)
        finally:
            self.send()
        self.deliver()
        return became != LEFT

    cdef bint is_open(self, connection) except -1:
        """Whether it may take anything now: nothing is in force that only Python does, and Redis is there."""
        cdef object broker = self.broker, authorizer = broker.authorizer
        if not self.watcher.module or self.quotas.timing or (authorizer is not None and authorizer.audit.all):
            return False
        self.rights = None if authorizer is None else connection.rights
        if self.detours is None:
            if self.driver.way(0) is None:
                return False
            self.turn_to(self.driver.pipe)
        self.largest = broker.settings.socket_request_max_bytes
        return True

    cdef int turn_to(self, object pipe) except -1:
        """What is sent from now on goes to this connection."""
        if pipe is not self.pipe:
            self.send()
            pipe.quick = self._replies
            self.pipe = pipe
        return 0

    cdef int frame(self, connection, const uint8_t* at, int64_t size, double now) except -1:
        """Takes one request, without its length, or leaves it with nothing changed."""
        if size >= 2 and be16(at) == FETCH:
            return self.fetches.take(connection, at, size, now)
        return ANSWERED if self.produce(connection, at, size, now) else LEFT

    cdef bint produce(self, connection, const uint8_t* at, int64_t size, double now) except -1:
        cdef ProduceRequest* request = &self.request
        cdef list flights
        cdef double begun
        cdef object transactional_id = None
        if not recognise(at, size, request) or not self.is_named(connection.client_id, request.client):
            return False
        if self.coin and self.tails():
            return False
        if request.transaction.at != NULL:
            if self.watcher.module < module.TRANSACTIONS_SINCE:
                return False
            try:
                transactional_id = text(request.transaction).decode()
            except UnicodeDecodeError:
                return False
            if not self.may_write(TRANSACTIONAL_ID, transactional_id):
                return False
        begun = clock()
        flights = self.look(request, begun)
        if flights is None:
            return False
        self.go(connection, request, transactional_id, flights, size + 4, now, begun)
        return True

    cdef bint is_named(self, object known, Span client) except -1:
        """Whether the request's client id is the one that is known of its connection."""
        if known is None or client.at == NULL:
            return known is None and client.at == NULL
        return (PyBytes_GET_SIZE(known) == client.size
                and memcmp(PyBytes_AS_STRING(known), client.at, client.size) == 0)

    cdef bint may_write(self, object resource, object name) except -1:
        """What an API's row asks of who produces, see `broker.touches`; a denial is Python's to answer and to take down."""
        return self.rights is None or <bint>self.rights.decide(WRITE, resource, name).allowed

    cdef bint tails(self):
        self.random ^= self.random << 13
        self.random ^= self.random >> 7
        self.random ^= self.random << 17
        return self.random & 1

    # -- looking: nothing is changed

    cdef list look(self, ProduceRequest* request, double now):
        """Every batch of the request, each with its place; None where one is not for the lane."""
        cdef Section* section
        cdef Part* part
        cdef Known known
        cdef Flight flight
        cdef list flights = []
        cdef int64_t room = self.gate.limit - self.gate.used, ms = clock_ms()
        cdef int n, i
        self.serial += 1
        for n in range(request.sections):
            section = &request.section[n]
            known = self.find(section.name, request.version, now)
            if known is None or known.serial == self.serial or (request.acks == -1 and known.copies > 1):
                return None
            if not self.may_write(TOPIC, known.name):
                return None
            known.serial = self.serial
            for i in range(section.count):
                part = &request.part[section.first + i]
                if room < 0 or ((part.head.attributes & CODEC) == ZSTD and request.version < ZSTD_SINCE):
                    return None
                flight = self.admit(known, part, request.transaction.at != NULL, now, ms)
                if flight is None:
                    return None
                flight.known, flight.parts = (known if i == 0 else None), section.count
                room -= flight.weight
                flights.append(flight)
        return flights

    cdef Known find(self, Span name, int version, double now):
        """The topic, where the cache has it and it is not too old."""
        cdef bytes wire = text(name)
        cdef Known known = self.known.get(wire)
        if known is not None and self.topics.cached.get(known.name) is not known.cached:
            del self.known[wire]
            known = None
        if known is None:
            known = self.learn(wire, version >= IDS)
        if known is None or not known.common or now - known.since >= self.topics.max_age:
            return None
        if (version >= IDS) == isinstance(known.key, str):
            return None  # the topic was cached by its name, and the request has an id of the same bytes, or the reverse
        return known

    cdef Known learn(self, bytes wire, bint by_id):
        key, cached = self.topics.held(wire, by_id)
        if cached is None:
            return None
        if len(self.known) >= 10000:
            self.known.clear()
        noted = self.notes.noted.get(cached[1].name)
        if noted is None:
            return None
        known = self.known[wire] = Known(wire, key, cached, noted)
        return known

    cdef Track track(self, Known known, int32_t index):
        cdef Track track = known.tracks.get(index)
        if track is None and 0 <= index < known.topic.partitions:
            track = known.tracks[index] = Track(self.log.partition(known.topic, index))
        return track

    cdef Flight admit(self, Known known, Part* part, bint transactional, double now, int64_t ms):
        """What `validate.admit`, `TopicNotes.news` and `AppendState.next` let pass without a question to Redis."""
        cdef BatchHead* head = &part.head
        cdef Track track
        cdef Flight flight
        if not self.is_welcome(known, head, part.batch.size, ms):
            return None
        track = self.track(known, part.index)
        if track is None or track.serial == self.serial or not self.is_ours(track, now):
            return None
        track.serial = self.serial
        flight = Flight.__new__(Flight)
        flight.track, flight.index, flight.transactional = track, part.index, transactional
        self.measure(known, head, part.batch.size, flight)
        if flight.weight > self.largest or flight.entries > MOST_ENTRIES:
            return None
        if not self.is_no_news(known, part, now, ms, flight):
            return None
        if not self.is_next(track.state, head, flight) or not self.place(track, head, ms, flight):
            return None
        if self.detours is not None:
            flight.node = self.driver.way(track.slot)
            if flight.node is None:
                return None
        flight.data = text(part.batch)
        if <uint32_t>crc32c(memoryview(flight.data)[CHECKED_FROM:]) != head.crc:
            return None
        return flight

    cdef int measure(self, Known known, BatchHead* head, int64_t size, Flight flight) except -1:
        """As `WholeBatch` and `RecordSet`."""
        flight.max_timestamp = head.max_timestamp
        if known.records:
            flight.size, flight.entries = size - HEADER_SIZE, head.count
            flight.weight = flight.size + COMMAND_SIZE * min(flight.entries, flight.size // RECORD_MIN)
        else:
            flight.size, flight.weight, flight.entries = size, size, 1
        return 0

    cdef bint is_welcome(self, Known known, BatchHead* head, int64_t size, int64_t ms) except -1:
        """What `validate.admit` asks of a batch, but for its checksum. Records that are compressed are not for here."""
        cdef int64_t most = self.largest
        cdef int codec = head.attributes & CODEC
        if size > known.largest_batch or size > most:
            return False
        if codec != 0 if known.records else known.codec >= 0 and known.codec != codec:
            return False
        if head.count > (most if codec else size - HEADER_SIZE) // RECORD_MIN:
            return False
        return (ms - known.before <= head.base_timestamp <= ms + known.after
                and ms - known.before <= head.max_timestamp <= ms + known.after)

    cdef bint is_ours(self, Track track, double now) except -1:
        """Whether the next batch may be sent at once, its ids chosen here, and where the log starts is known."""
        cdef object state = track.state, info = state.info, extent
        cdef double since
        if state.mode is not OURS or state.others_wrote or state.closed or info is None:
            return False
        if state.waiting or state.repeated or state.preparing or state.ending is not None:
            return False
        since = max(<double>state.info_since, <double>self.states.verified)
        extent = track.bounds.extent
        return (now - since < <double>self.states.max_age and extent is not None and extent.archived is None
                and extent.info.lineage is info.lineage)

    cdef bint is_no_news(self, Known known, Part* part, double now, int64_t ms, Flight flight) except -1:
        """Whether `TopicNotes` has nothing to write because of this batch; the topic's average with it."""
        cdef BatchHead* head = &part.head
        cdef double each = <double>flight.size / head.count, average = known.noted.average
        cdef double share = min(1.0, <double>head.count / SIZE_OF)
        cdef int64_t before = known.average
        cdef int codec = head.attributes & CODEC
        flight.average = average + (each - average) * share
        if head.max_timestamp - ms > known.lead or (
                flight.size > known.largest and largest(known, part) > known.largest):
            return False
        if fabs(rint(flight.average) - before) > before / 8.0 and now >= <double>known.noted.size_due:
            return False
        return not known.notes_codec or codec == known.seen or now < <double>known.noted.codec_due

    cdef bint is_next(self, object state, BatchHead* head, Flight flight) except -1:
        """Whether the batch is the next one of its producer, if it has one.

        None of the last five can be the same one: all their records are fewer than there are sequences.
        """
        flight.append.producer, flight.append.base_timestamp = -1, head.base_timestamp
        if head.producer < 0:
            return True
        sender = state.producers.get(head.producer)
        if sender is None or <bint>sender.in_transaction != flight.transactional or sender.epoch != head.epoch:
            return False
        last = sender.last_sequence
        if last < 0 or head.base_sequence != ((<int64_t>last + 1) & SEQUENCE_MASK):
            return False
        flight.sender = sender
        flight.append.producer, flight.append.epoch, flight.append.last_sequence = head.producer, head.epoch, last
        flight.append.first_sequence = head.base_sequence
        flight.append.end_sequence = (<int64_t>head.base_sequence + head.count - 1) & SEQUENCE_MASK
        return True

    cdef bint place(self, Track track, BatchHead* head, int64_t ms, Flight flight) except -1:
        """As `AppendState._place` in OURS. False where an id is beyond what Kafka or a C integer can say."""
        cdef tuple follows = track.state.last
        cdef object since = follows[0], seq = follows[1]
        cdef int bits = track.bits
        cdef int64_t last, limit = <int64_t>1 << (62 - bits)
        if since >= limit or seq >= FAR // 2 or ms >= limit:
            return False
        flight.follows = follows
        flight.append.expected.ms, flight.append.expected.seq = since, seq
        flight.begin = (<int64_t>since << bits) + <int64_t>seq - track.dense + 1
        flight.offset = max(flight.begin, 0 if track.dense else max(ms << bits, track.floor))
        if flight.offset > LAST - head.count:
            return False
        last = flight.offset + track.dense
        flight.append.first.ms, flight.append.first.seq = last >> bits, last & ((<int64_t>1 << bits) - 1)
        last += head.count - 1
        flight.last = (last >> bits, last & ((<int64_t>1 << bits) - 1))
        flight.append.count, flight.append.now = head.count, ms
        return True

    # -- going: everything was looked at

    cdef int go(self, connection, ProduceRequest* request, object transactional_id, list flights, int64_t size,
                double now, double begun) except -1:
        cdef Answer answer = Answer.__new__(Answer)
        cdef Flight flight
        answer.lane, answer.connection, answer.flights = self, connection, flights
        answer.version, answer.correlation_id, answer.acks = request.version, request.correlation, request.acks
        answer.missing, answer.sections, answer.size = len(flights), request.sections, size
        answer.transactional_id, answer.client_id = transactional_id, connection.client_name
        answer.received, answer.begun = now, begun
        answer.deadline = now + max(LEAST_TIMEOUT, request.timeout / 1000.0)
        if self.detours is None:
            self.commit_all(flights, None, answer)
        else:
            for node in dict.fromkeys([(<Flight>each).node for each in flights]):
                self.turn_to(node.pipe)
                self.commit_all(flights, node, answer)
        connection.taken(answer)
        self.requests["produce"] += 1
        self.taken["produce"] += 1
        self.live.add(answer)
        if self.timer is None or answer.deadline < self.due:
            self.wake_at(answer.deadline, now)
        return 0

    cdef int commit_all(self, list flights, object node, Answer answer) except -1:
        """The batches of a node count as sent."""
        cdef Flight flight
        cdef Known known = None
        for flight in flights:
            known = known if flight.known is None else flight.known
            if flight.node is node:
                flight.answer = answer
                self.commit(flight, known)
        return 0

    cdef int commit(self, Flight flight, Known known) except -1:
        """The batch counts as sent."""
        cdef Track track = flight.track
        cdef object state = track.state, sender = flight.sender
        cdef int64_t size = PyBytes_GET_SIZE(flight.data), skipped = HEADER_SIZE if track.records else 0
        cdef Frame* frame = flight.frame()
        known.noted.average = flight.average
        self.gate.used += flight.weight
        flight.future = self.create_future()
        if sender is not None:
            sender.last_sequence = flight.append.end_sequence
            sender.batches.append(
                Appended(flight.append.first_sequence, flight.append.end_sequence, flight.future))
            producers = <dict>state.producers
            del producers[flight.append.producer]
            producers[flight.append.producer] = sender  # the latest comes last
            flight.sender = None
        state.last = flight.last
        (<list>state.flying).append(flight)
        put_append(&self.commands, frame, &flight.append, size - skipped)
        if size > ONE_PIECE:
            self.cut()
            self.pieces.append(memoryview(flight.data)[skipped:] if skipped else flight.data)
        else:
            put(&self.commands, PyBytes_AS_STRING(flight.data) + skipped, size - skipped)
        put(&self.commands, frame.tail.at, frame.tail.size)
        self.entries.append((REPLIES, flight))
        self.messages_in[known.name] += flight.append.count
        self.bytes_in[known.name] += size
        return 0

    cdef int cut(self) except -1:
        """What comes next is a piece of its own."""
        if self.commands.failed:
            raise MemoryError
        if self.commands.size:
            self.pieces.append(PyBytes_FromStringAndSize(<char*>self.commands.data, self.commands.size))
            self.commands.size = 0
        return 0

    cdef int send(self) except -1:
        if self.entries:
            self.cut()
            entries, self.entries = self.entries, []
            pieces, self.pieces = self.pieces, []
            self.pipe.post_all(entries, tuple(pieces))
        return 0

    # -- replies

    def _replies(self, bytearray buffer, Py_ssize_t start, Py_ssize_t end, waiting):
        """Takes the replies of batches that are stored as expected, from the front; where the next one begins."""
        cdef const uint8_t* data = <const uint8_t*>PyByteArray_AS_STRING(buffer)
        cdef int64_t size
        self.replying = True
        try:
            while waiting:
                taker = waiting[0][1]
                if type(taker) is not Flight or self.detours:
                    break
                size = landed_reply(data + start, data + end)
                if size == 0:
                    break
                waiting.popleft()
                start += size
                (<Flight>taker).land(self)
        finally:
            self.replying = False
        if self.fetches.woken:
            self.fetches.wake()
        else:
            self.deliver()
        return start

    cdef int deliver(self) except -1:
        """Has each connection write what is ready, once."""
        cdef Answer answer
        if not self.finished:
            return 0
        finished, self.finished = self.finished, []
        connections = []
        for made in finished:
            if type(made) is Poll:
                connections.append((<Poll>made).connection)
                continue
            answer = made
            if answer.acks == 0:
                answer.connection.stored(answer)
                self.note(answer, answer.made_at)
            else:
                connections.append(answer.connection)
        for connection in dict.fromkeys(connections):
            connection.deliver()
        return 0

    # -- how long requests took

    cdef int note(self, Answer answer, double now) except -1:
        """As `Timekeeper.note`."""
        cdef double total = now - answer.received, queue = answer.begun - answer.received
        cdef double redis = answer.made_at - answer.begun, send = now - answer.made_at
        self.observe(self.total, total)
        self.observe(self.queue, queue)
        self.observe(self.redis, redis)
        self.observe(self.sending, send)
        for known in answer.known:
            self.observe((<Known>known).latency, total)
        if total >= self.slow_after:
            self.timekeeper.slow("Produce", "produce", answer.version, answer.connection.client, queue, redis, send)
        return 0

    cdef void observe(self, Series series, double value) noexcept:
        """As `Histogram.observe`."""
        cdef Py_ssize_t n = 0
        while self.bounds[n] < value:
            n += 1
        series.counts.data.as_longlongs[n] += 1
        series.total.data.as_doubles[0] += value

    # -- deadlines

    cdef int wake_at(self, double due, double now) except -1:
        if self.timer is not None:
            self.timer.cancel()
        self.due = due
        self.timer = self.call_later(max(0.0, due - now), self._look_at_deadlines)
        return 0

    def _look_at_deadlines(self):
        cdef Answer answer
        cdef double now = time.monotonic(), due = 0.0
        self.timer = None
        for answer in list(self.live):
            if answer.deadline <= now:
                answer.take_back(self, now)
            elif due == 0.0 or answer.deadline < due:
                due = answer.deadline
        if due:
            self.wake_at(due, now)


include "_kernel_fetch.pxi"
