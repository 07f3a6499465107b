# cython: boundscheck=False, wraparound=False
"""Histograms in C: what every request adds to, and every command to Redis that is timed. Its twin is `_pure_histogram`,
which says what each of them is.

What costs is not the sums but the memory that they touch, which is cold when a request is done. So what is noted is
written down, one line of the cache a request, and added to the histograms when there is enough of it, or when one of
them is read.
"""

cimport cython
from cpython cimport array
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

import array as arrays

cdef enum:
    NOTES = 64

cdef dict _bounds = {}  # each once, whoever has them

cdef struct Trip:
    double seconds, depth

cdef struct Note:
    double total, queue, redis, wait, send
    void* latency  # a histogram, of the topic that was appended to; or NULL


cdef class Notes:
    """What is still to be added to histograms."""

    cdef Py_ssize_t made

    cdef void settle(self) noexcept:
        """Adds it."""


@cython.final
cdef class Histogram:
    cdef array.array _counts, _total
    cdef array.array bounds
    # Where their numbers are, which an array whose length stays does not move.
    cdef long long* count
    cdef double* sum
    cdef double* bound
    cdef Py_ssize_t size
    cdef Notes noted  # where there may be more for it

    def __init__(self, bounds):
        self.bounds = _bounds.setdefault(tuple(bounds), arrays.array("d", bounds))
        self.size = len(self.bounds)
        self._counts = arrays.array("q", bytes(8 * (self.size + 1)))
        self._total = arrays.array("d", [0.0])
        self.count, self.sum = self._counts.data.as_longlongs, self._total.data.as_doubles
        self.bound = self.bounds.data.as_doubles

    @property
    def counts(self):
        if self.noted is not None:
            self.noted.settle()
        return self._counts

    @property
    def total(self):
        if self.noted is not None:
            self.noted.settle()
        return self._total

    def observe(self, double value):
        if self.noted is not None:
            self.noted.settle()  # what was first is added first
        self.add(value)

    cdef void add(self, double value) noexcept:
        cdef Py_ssize_t n = 0
        while n < self.size and self.bound[n] < value:
            n += 1
        self.count[n] += 1
        self.sum[0] += value


@cython.final
cdef class Times(Notes):
    cdef readonly Histogram total, queue, redis, wait, send
    cdef object latencies
    cdef list linked  # histograms that notes point to
    cdef Note notes[NOTES]

    def __init__(self, Histogram total, Histogram queue, Histogram redis, Histogram wait, Histogram send, latencies):
        self.total, self.queue, self.redis, self.wait, self.send = total, queue, redis, wait, send
        self.latencies, self.linked = latencies, []
        for each in (total, queue, redis, wait, send):
            (<Histogram>each).noted = self

    def note(self, request, double made, double written, double slow_after):
        cdef double received = request.received, begun = request.begun, waited = request.waited
        cdef double total = written - received
        cdef Note* note
        cdef Histogram latency = None
        cdef tuple appended = request.appended
        if len(appended) == 1:
            latency = self.latencies[appended[0]]
            if latency.noted is not self:
                latency.noted = self
                self.linked.append(latency)
        else:
            for topic in appended:
                self.latencies[topic].observe(total)
        if self.made == NOTES:
            self.settle()
        note = &self.notes[self.made]
        note.total, note.queue, note.redis = total, begun - received, made - begun - waited
        note.wait, note.send, note.latency = waited, written - made, NULL if latency is None else <void*>latency
        self.made += 1
        return total - waited >= slow_after or <tuple>request.traces != ()

    cdef void settle(self) noexcept:
        cdef Note* note
        cdef Py_ssize_t n
        for n in range(self.made):
            note = &self.notes[n]
            self.total.add(note.total)
            self.queue.add(note.queue)
            self.redis.add(note.redis)
            self.send.add(note.send)
            if note.wait:
                self.wait.add(note.wait)
            if note.latency != NULL:
                (<Histogram>note.latency).add(note.total)
        self.made = 0


@cython.final
cdef class Trips(Notes):
    cdef readonly long long commands
    cdef readonly Histogram taken, depth
    cdef Trip trips[NOTES]
    cdef double sent_at, on_their_way

    def __init__(self, Histogram taken, Histogram depth):
        self.taken, self.depth = taken, depth
        taken.noted = depth.noted = self

    def sent(self, Py_ssize_t depth):
        self.on_their_way, self.sent_at = depth, clock()

    def answered(self, long long commands):
        cdef Trip* trip
        if self.made == NOTES:
            self.settle()
        trip = &self.trips[self.made]
        trip.seconds, trip.depth = clock() - self.sent_at, self.on_their_way
        self.made += 1
        self.commands += commands

    cdef void settle(self) noexcept:
        cdef Py_ssize_t n
        for n in range(self.made):
            self.taken.add(self.trips[n].seconds)
            self.depth.add(self.trips[n].depth)
        self.made = 0


cdef double clock() noexcept:
    """As time.monotonic."""
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + now.tv_nsec * 1e-9
