# cython: boundscheck=False, wraparound=False
"""Histograms in C: what every request adds to, and every command to Redis that is timed. Its twin is `_pure_histogram`,
which says what each of them is.
"""

cimport cython
from cpython cimport array

import array as arrays

cdef dict _bounds = {}  # each once, whoever has them


@cython.final
cdef class Histogram:
    cdef readonly array.array counts, total
    cdef array.array bounds
    # Where their numbers are, which an array whose length stays does not move: the fewer lines of the cache, the better.
    cdef long long* count
    cdef double* sum
    cdef double* bound
    cdef Py_ssize_t size

    def __init__(self, bounds):
        self.bounds = _bounds.setdefault(tuple(bounds), arrays.array("d", bounds))
        self.size = len(self.bounds)
        self.counts = arrays.array("q", bytes(8 * (self.size + 1)))
        self.total = arrays.array("d", [0.0])
        self.count, self.sum = self.counts.data.as_longlongs, self.total.data.as_doubles
        self.bound = self.bounds.data.as_doubles

    def observe(self, double value):
        self.add(value)

    cdef void add(self, double value) noexcept:
        cdef Py_ssize_t n = 0
        while n < self.size and self.bound[n] < value:
            n += 1
        self.count[n] += 1
        self.sum[0] += value


@cython.final
cdef class Times:
    cdef readonly Histogram total, queue, redis, wait, send

    def __init__(self, Histogram total, Histogram queue, Histogram redis, Histogram wait, Histogram send):
        self.total, self.queue, self.redis, self.wait, self.send = total, queue, redis, wait, send

    def note(self, request, double made, double written):
        cdef double received = request.received, begun = request.begun, waited = request.waited
        cdef double total = written - received
        self.total.add(total)
        self.queue.add(begun - received)
        self.redis.add(made - begun - waited)
        self.send.add(written - made)
        if waited:
            self.wait.add(waited)
        return total - waited
