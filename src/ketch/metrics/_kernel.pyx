# cython: boundscheck=False, wraparound=False
"""Histograms in C: what every request adds to, and every command to Redis that is timed. Its twin is `_pure_histogram`,
which says what each of them is.
"""

cimport cython
from cpython cimport array

import array as arrays


@cython.final
cdef class Histogram:
    cdef readonly array.array counts, total
    cdef array.array bounds

    def __init__(self, bounds):
        self.bounds = arrays.array("d", bounds)
        self.counts = arrays.array("q", bytes(8 * (len(self.bounds) + 1)))
        self.total = arrays.array("d", [0.0])

    def observe(self, double value):
        self.add(value)

    cdef void add(self, double value) noexcept:
        cdef Py_ssize_t n = 0, size = len(self.bounds)
        while n < size and self.bounds.data.as_doubles[n] < value:
            n += 1
        self.counts.data.as_longlongs[n] += 1
        self.total.data.as_doubles[0] += value


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
