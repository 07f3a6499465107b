# Fetch: what `ketch.lane` has in its second table. It is a part of _kernel.pyx.
#
# A request is a `Poll`, what it asks of one partition a `Seat`; a target of a session keeps its seat for the next
# request. A look is done before anything is changed: who calls `look` goes on with what it has found, or leaves the
# request to Python, which looks again.

cdef enum:
    LEFT, ANSWERED, AWAITED  # what became of a request that came in; awaited: its connection waits with it
    FOREIGN, LITTLE, ENOUGH  # what a look ends with: it is not for the lane, there is less than min_bytes, or not
    AWAY  # a look ends with this, too: some records have to be read from Redis first
    NEW, WAITING, READING, GONE  # a request: it is looked at; waits; its records are on their way; it is not the lane's
    DUE_MAX = WANTED_MAX  # partitions that are looked at
    FEW_READS = 4  # reads of a request that there may be at a time, whatever they will likely give
    MANY_READS = 32  # the same, however little that is: nobody knows
    IN_FLIGHT = 1 << 20  # bytes that more than FEW_READS will likely give
    SHARED_MAX = 16  # partitions of a request up to which what is read is kept for other readers (`log.recent`)

cdef int READS_MAX = READS  # requests that read from Redis at a time, beside as many of Python (`connections.room`)


@cython.final
cdef class Source:
    """One topic as some requests name it."""

    cdef object key, name, cached, topic
    cdef bytes wire  # its name, or the bytes of its id, as a request has it
    cdef double since
    cdef dict spots  # by index
    cdef bint common  # whether all that is stored may be read
    cdef int codec

    def __init__(self, bytes wire, object key, object cached):
        topic = cached[1]
        self.wire, self.key, self.cached, self.topic = wire, key, cached, topic
        self.name, self.since, self.spots = topic.name, cached[0], {}
        self.common, self.codec = topic.intake.copies == 1, fetch_codec(topic)


@cython.final
cdef class Spot:
    """One partition: what is fixed of it, and the objects that say where its log starts and ends."""

    cdef object state, bounds, reader, sizes
    cdef tuple place  # topic and index
    cdef bytes stream
    cdef bint records  # an entry is a record
    cdef int bits, dense
    cdef int64_t floor
    cdef uint64_t named  # by which request without a session it was named

    def __init__(self, partition):
        state = self.state = partition.state
        self.bounds, self.reader, self.sizes = partition.bounds, partition.reader, partition.sizes
        self.place = (partition.topic.name, partition.index)
        self.stream, self.records, self.floor = state.keys.stream, state.layout.entry_is_record, state.floor
        self.bits, self.dense = state.numbering.bits, state.numbering.dense


@cython.final
@cython.freelist(256)
cdef class Seat:
    """What a request asks of one partition, and what was found there."""

    cdef object target  # of its session; None where there is none yet
    cdef Source source
    cdef Spot spot
    cdef Poll poll  # the one that waits and has looked at it
    cdef uint64_t named, due  # by which request it was named, and in which look it is due
    cdef int32_t index, most
    cdef int64_t offset
    cdef object rights, rules  # by which it may be read
    cdef int64_t start, end, stable, size  # log start, high watermark, last stable offset; bytes of the records
    cdef int64_t away, weight  # bytes that may come from Redis, 0 where none has to; and how many likely will
    cdef object coming, chunk  # the future of records that others may be given, too; and the chunk that has come
    cdef uint64_t read  # number of the read of records that nobody else is given; 0 for none
    cdef bint has_data, more
    cdef list batches  # those that are given: base offset and bytes
    cdef object served  # the same as a `Chunk` has it: in the record layout, and from Redis

    def _brought(self, future):
        """The future of its records is done."""
        if future is self.coming:
            self.coming = None
            self.ended(None if future.cancelled() or future.exception() is not None else future.result())

    def _reply(self, uint64_t read, reply):
        """Takes Redis's reply to the read of this number; its request may have ended since."""
        if read == self.read and self.poll is not None and self.poll.state == READING:
            chunk = None
            if isinstance(reply, bytes):
                with suppress(Exception):  # Python asks again, and says it
                    chunk = self.spot.reader.chunk(reply, self.away)
                    chunk.served(self.source.codec, self.poll.version >= FETCH_ZSTD)  # while Redis makes other replies
            self.ended(chunk)

    cdef int ended(self, chunk) except -1:
        """A read has brought a chunk, or None where it has failed: others are asked for as there is room now."""
        cdef Poll poll = self.poll
        cdef int64_t beyond
        if poll is None or poll.state != READING:
            return 0
        if chunk is None:
            return poll.fetches.hand_on(poll)
        self.chunk, beyond = chunk, <int64_t>chunk.wire_size - self.weight
        poll.reserved += beyond
        poll.room -= beyond
        poll.flying -= self.weight
        poll.left -= 1
        if poll.left == 0:
            poll.fetches.brought(poll)
            poll.fetches.lane.deliver()
        elif poll.left < FEW_READS or (poll.left <= MANY_READS // 2 and poll.flying <= IN_FLIGHT // 2):
            poll.fetches.top_up(poll)
        return 0


@cython.final
@cython.freelist(256)
cdef class Poll:
    """One request. When it is answered it stands in its connection's line of responses, see `broker.places.Polled`.

    While it waits, it has the place of its connection's worker, and its session's waiter calls it.
    """

    cdef Fetches fetches
    cdef object connection, timer, client_id, known_rights
    cdef list seats  # in the order in which they were first looked at
    cdef uint8_t state
    cdef bint committed, told, sure  # told: it is in `Fetches.woken`; sure: archives were asked for, see `doubt`
    cdef int32_t correlation, least, most
    cdef int16_t version
    cdef double since, made_at  # since: when it began to wait
    cdef list givers  # the seats that have data, in the order in which they give it
    cdef Py_ssize_t first, asked, next  # in `givers`: of reads not taken yet, of reads not sent yet, of what to look at
    cdef bint empty  # none has given anything, so the next one may give more than there is room
    cdef int64_t whole, room  # bytes that there is room for, and that are left for those from `next` on
    cdef int64_t reserved  # bytes that those from `first` to `next` will likely give, where they have to be read
    cdef int64_t counted  # bytes by which others have less room (`connections.room`)
    cdef int64_t flying  # the same of reads that have not ended
    cdef int left  # reads, or other questions, that have not ended
    cdef readonly object session
    cdef readonly bytes frame
    cdef readonly double received, begun, deadline, waited
    cdef readonly int64_t size
    cdef readonly bint ready
    cdef readonly object made

    @property
    def rights(self):
        return self.known_rights

    def set(self, made):
        """See `broker.places.Place`."""
        self.made, self.ready, self.made_at = made, True, clock()

    def done(self, double now):
        """Notes how long it took, see `broker.timekeeper`."""
        self.fetches.note(self, now)

    def cancel(self):
        """Its client is gone."""
        session = self.session
        self.leave()
        drop(self.seats or [])
        if session is not None and not session.id:
            session.close()

    def _wake(self):
        """A stream has changed; what is known of it now is not complete before those who told it are done."""
        if self.state == WAITING and not self.told:
            self.told = True
            self.fetches.tell(self)

    def _told(self, future):
        """One of its questions has been answered."""
        self.left -= 1
        if self.state == READING and self.left == 0:
            self.fetches.brought(self)
            self.fetches.lane.deliver()

    def _expire(self):
        self.timer = None
        self.fetches.resume(self)
        self.fetches.lane.deliver()

    cdef int leave(self) except -1:
        """It neither waits nor reads any more."""
        cdef Seat seat
        self.settle()
        self.state = GONE
        for seat in self.seats or ():
            seat.poll = None
            if seat.target is not None and not self.session.id:
                seat.target.seat = None  # neither is needed any more, and each has the other
        return 0

    cdef int settle(self) except -1:
        """Ends what goes on in its state."""
        if self.state == WAITING:
            self.session.waiter.forget(self._wake)
        elif self.state == READING:
            self.fetches.reading -= 1
            self.fetches.responses.count(-self.counted)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        return 0


@cython.final
cdef class Fetches:
    """The part of a lane that takes fetches: `take` is what it calls for each, `wake` when streams have changed."""

    cdef Lane lane
    cdef object broker, sessions, assignments, responses, watcher, states, topics, log, quotas, newest
    cdef object call_soon, call_later
    cdef object rights  # by which it is looked now
    cdef uint64_t serial, reads  # of requests, and of reads
    cdef int reading  # requests whose records are on their way
    cdef dict sources
    cdef list woken  # those that have been told
    cdef bint waking  # `wake` will be called in another turn
    cdef FetchRequest request
    cdef Series total, queue, redis, waiting, sending
    cdef object requests, taken, handed_on, bytes_out  # counts of metrics

    def __init__(self, Lane lane, loop):
        broker = self.broker = lane.broker
        self.lane, self.sessions, self.assignments = lane, broker.sessions, broker.assignments
        self.responses, self.quotas, self.log = broker.responses, broker.quotas, broker.log
        self.watcher, self.states, self.topics, self.newest = lane.watcher, lane.states, lane.topics, lane.newest
        self.call_soon, self.call_later = loop.call_soon, loop.call_later
        self.sources, self.woken = {}, []
        times = metrics.times("fetch")
        self.total, self.queue, self.redis = Series(times.total), Series(times.queue), Series(times.redis)
        self.waiting, self.sending = Series(times.wait), Series(times.send)
        self.requests, self.bytes_out = lane.requests, metrics.bytes_out.counts
        self.taken, self.handed_on = lane.taken, lane.taken_back

    # -- requests

    cdef int take(self, connection, const uint8_t* at, int64_t size, double now) except -1:
        """Takes one request, or leaves it with nothing changed."""
        cdef FetchRequest* request = &self.request
        cdef double begun
        cdef Poll poll
        cdef int found
        cdef object session = None
        if not recognise_fetch(at, size, request) or not self.lane.is_named(connection.client_id, request.client):
            return LEFT
        if self.watcher.closing or self.lane.coin and self.lane.tails():
            return LEFT
        begun, self.rights = clock(), self.lane.rights
        if len(self.sources) >= 10000:
            self.sources.clear()
        if request.session != 0 or request.epoch != -1:
            session = self.continued(request, begun)
            if session is None:
                return LEFT
        elif request.parts == 0:
            return LEFT
        poll = Poll.__new__(Poll)
        poll.fetches, poll.connection, poll.session = self, connection, session
        poll.client_id, poll.known_rights = connection.client_name, self.rights
        poll.committed, poll.least, poll.most = request.committed, request.least, request.most
        poll.version, poll.correlation = request.version, request.correlation
        poll.received, poll.begun, poll.size = now, begun, size + 4
        poll.deadline = begun + request.wait / 1000.0
        poll.seats = self.due(poll, request, begun)
        if poll.seats is None:
            return LEFT
        found = self.look(poll, poll.seats, begun)
        if found == FOREIGN or (found == LITTLE and has_records(poll.seats)):
            drop(poll.seats)
            return LEFT
        self.go(poll, request, found, begun)
        if found == ENOUGH or (found == LITTLE and request.wait <= 0):
            self.answer(poll, begun)
            return ANSWERED
        poll.frame = PyBytes_FromStringAndSize(<const char*>at, size)
        for seat in poll.seats:
            (<Seat>seat).poll = poll
        connection.awaits(poll)
        if found == AWAY:
            self.bring(poll)
        else:
            self.wait(poll, begun)
        return AWAITED

    cdef object continued(self, FetchRequest* request, double now):
        """The session that a request goes on with; None where Python has to look."""
        session = self.sessions.get(request.session)
        if session is None or session.epoch != request.epoch or not session.targets:
            return None
        if session.by_id != (request.version >= FETCH_IDS) or session.waiter.committed != request.committed:
            return None
        if self.rights is not None:
            authorized = session.authorized
            if not (len(authorized) == 2 and authorized[0] is self.rights and authorized[1] is self.rights.stamp):
                return None
        return None if session.is_all_due(now) else session

    cdef int go(self, Poll poll, FetchRequest* request, int found, double now) except -1:
        """It is the lane's: does to its session and its connection what the handler does before it has read."""
        cdef Seat seat
        cdef object session = poll.session, reader = poll.connection.reader, behind
        if session is None:
            if found == LITTLE and request.wait > 0:
                self.enter(poll, now)
        else:
            self.sessions.advance(session)
            behind = session.behind
            for seat in poll.seats:
                if seat.named == self.serial:
                    target = seat.target
                    target.offset, target.max_bytes, target.leader_epoch = seat.offset, seat.most, -1
                    behind.setdefault(target.key, target)
        reader.ask(now)
        if self.assignments.assigned and reader.member is None:
            places = [(<Seat>each).spot.place for each in poll.seats]
            self.assignments.meet(reader, poll.client_id or "", poll.connection.host, places)
        self.taken["fetch"] += 1
        if session is not None:
            self.looked(poll, poll.seats, now)
        return 0

    cdef int enter(self, Poll poll, double now) except -1:
        """Gives a request without a session one to wait by, or for Python to go on with."""
        cdef Seat seat
        wanted = [((<Seat>each).source.key, (<Seat>each).index, (<Seat>each).offset, (<Seat>each).most)
                  for each in poll.seats]
        session = poll.session = self.sessions.passing_by(wanted, poll.committed, now)
        for seat, target in zip(poll.seats, session.targets.values()):
            seat.target, target.seat = target, seat
        self.looked(poll, poll.seats, now)
        return 0

    cdef int looked(self, Poll poll, list seats, double now) except -1:
        """Notes that these were looked at: those at their end are watched, and due no more until they change."""
        cdef Seat seat
        session = poll.session
        if session.waiter.changed:
            session.due(now)
        for seat in seats:
            if not seat.has_data:
                session.watch(seat.target, seat.spot.stream)
                session.reached_end(seat.target)
        return 0

    # -- which partitions

    cdef list due(self, Poll poll, FetchRequest* request, double now):
        """Those that may have something to say, in the handler's order: as `Session.update` and `Session.due`.

        None where one is not for the lane.

        Args:
            request: NULL after a wait.
        """
        cdef Section* section
        cdef Source source
        cdef Seat seat
        cdef list named = [], due = []
        cdef int n, i
        cdef object session = poll.session, targets = None if session is None else session.targets
        self.serial += 1
        if request != NULL:
            for n in range(request.sections):
                section = &request.section[n]
                source = self.find(text(section.name), request.version >= FETCH_IDS, now)
                if source is None:
                    return None
                for i in range(section.first, section.first + section.count):
                    if session is None:
                        seat = self.fresh(source, request.part[i].index)
                    else:
                        target = targets.get((source.key, request.part[i].index))
                        seat = None if target is None else self.seat(poll, target, now)
                    if seat is None or seat.named == self.serial:
                        return None
                    seat.named = self.serial
                    seat.offset, seat.most = request.part[i].offset, request.part[i].most
                    named.append(seat)
        if session is None:
            return named
        for target in session.behind.values():
            if not self.add(poll, target, due, now):
                return None
        for seat in named:
            if seat.due != self.serial:
                seat.due = self.serial
                due.append(seat)
        for stream in session.waiter.changed:
            target = targets.get(session.keys.get(stream))
            if target is not None and not self.add(poll, target, due, now):
                return None
        return due if len(due) <= DUE_MAX else None

    cdef bint add(self, Poll poll, target, list due, double now) except -1:
        cdef Seat seat = self.seat(poll, target, now)
        if seat is None:
            return False
        if seat.due != self.serial:
            seat.due = self.serial
            if seat.named != self.serial:
                seat.offset, seat.most = target.offset, target.max_bytes
                if <int>target.leader_epoch > 0:
                    return False
            due.append(seat)
        return len(due) <= DUE_MAX

    cdef Seat seat(self, Poll poll, target, double now):
        """That of a session's target; None where the lane cannot look at it, or another request waits with it."""
        cdef Seat seat = target.seat
        cdef Source source
        if seat is None:
            source = self.named(target.topic, now)
        elif seat.poll is not None and seat.poll is not poll:
            return None
        else:
            source = seat.source if self.is_known(seat.source, now) else self.named(target.topic, now)
        if source is None:
            return None
        if seat is None:
            seat = target.seat = Seat.__new__(Seat)
            seat.target, seat.index = target, target.partition
        if seat.source is not source:
            seat.source, seat.rights = source, None
            seat.spot = self.spot(source, seat.index)
        return seat if seat.spot is not None else None

    cdef Seat fresh(self, Source source, int32_t index):
        """One for a request without a session; None where the partition was named before."""
        cdef Spot spot = self.spot(source, index)
        cdef Seat seat
        if spot is None or spot.named == self.serial:
            return None
        spot.named = self.serial
        seat = Seat.__new__(Seat)
        seat.source, seat.index, seat.spot = source, index, spot
        return seat

    cdef Spot spot(self, Source source, int32_t index):
        cdef Spot spot = source.spots.get(index)
        if spot is None and 0 <= index < source.topic.partitions:
            spot = source.spots[index] = Spot(self.log.partition(source.topic, index))
        return spot

    cdef Source named(self, key, double now):
        """The topic by its key in a session."""
        return self.find(key.encode(), False, now) if isinstance(key, str) else self.find(key.bytes, True, now)

    cdef Source find(self, bytes wire, bint by_id, double now):
        """The topic, where the cache has it and it is not too old."""
        cdef Source source = self.sources.get(wire)
        if source is not None and self.topics.cached.get(source.name) is not source.cached:
            del self.sources[wire]
            source = None
        if source is None:
            key, cached = self.topics.held(wire, by_id)
            if cached is None:
                return None
            source = self.sources[wire] = Source(wire, key, cached)
        return source if self.is_known(source, now) and by_id != isinstance(source.key, str) else None

    cdef bint is_known(self, Source source, double now) except -1:
        return (source.common and self.topics.cached.get(source.name) is source.cached
                and now - source.since < <double>self.topics.max_age)

    # -- looking: nothing is changed but seats

    cdef int look(self, Poll poll, list seats, double now) except -1:
        cdef Seat seat
        cdef int found
        cdef bint any_data = False
        cdef dict assigned = self.assignments.assigned
        cdef object client = poll.client_id or "", host = poll.connection.host if assigned else None
        for seat in seats:
            if not self.may_read(seat) or not self.bound(seat, poll.committed, now):
                return FOREIGN
            if seat.has_data:
                any_data = True
                if assigned and (client, host, seat.spot.place) in assigned:
                    return FOREIGN  # a member of a group reads through that
        if any_data:
            found = self.read(poll, seats)
            if found != ENOUGH:
                return found
        return ENOUGH if has_enough(poll.seats, poll.least) else LITTLE

    cdef bint may_read(self, Seat seat) except -1:
        """What the API's row asks of who fetches, see `broker.touches`; a denial is Python's."""
        rights = self.rights
        if rights is None:
            return True
        rules = rights.stamp
        if seat.rights is not rights or seat.rules is not rules:
            if not <bint>rights.decide(READ, TOPIC, seat.source.name).allowed:
                return False
            seat.rights, seat.rules = rights, rules
        return True

    cdef bint bound(self, Seat seat, bint committed, double now) except -1:
        """As `PartitionBounds.get`, where it asks nothing, and `Bounds.check`."""
        cdef Spot spot = seat.spot
        cdef object state = spot.state, info = state.info, transactions = state.transactions, extent
        cdef double verified = self.states.verified, max_age = self.states.max_age
        cdef tuple last, gap
        cdef int64_t limit
        seat.size, seat.away, seat.more, seat.batches, seat.served = 0, 0, False, None, None
        if info is None or transactions is None or state.closed:
            return False
        if (now - max(<double>state.info_since, verified) >= max_age
                or now - max(<double>state.transactions_since, verified) >= max_age):
            return False
        extent = spot.bounds.extent
        if extent is None or extent.archived is not None or extent.info.lineage is not info.lineage:
            return False
        last = info.last
        if last[0] >= <int64_t>1 << (62 - spot.bits) or last[1] >= FAR // 2:
            return False
        seat.start = extent.log_start
        seat.end = max((<int64_t>last[0] << spot.bits) + <int64_t>last[1] - spot.dense + 1, spot.floor)
        seat.stable = transactions.last_stable(seat.start, seat.end) if transactions.open else seat.end
        if not seat.start <= seat.offset <= seat.end or seat.offset < <int64_t>extent.start:
            return False
        limit = seat.stable if committed else seat.end
        seat.has_data = seat.offset < limit
        if seat.has_data:
            gap = spot.reader.gap
            seat.has_data = not (gap[0] <= seat.offset and limit <= gap[1])
        return True

    cdef int read(self, Poll poll, list seats) except -1:
        """As the handler's `_read` and `log.reads.fill`: ENOUGH, FOREIGN, or AWAY where some has to be read first."""
        cdef int found
        if self.responses.reading.locked():
            return FOREIGN
        poll.room = min(max(poll.most, 0), <int64_t>self.responses.of_fetch(self.broker.settings.fetch_max_bytes))
        if self.quotas.in_force:
            poll.room = min(poll.room, <int64_t>poll.connection.most(FETCHED))
        poll.whole, poll.empty = poll.room, True
        poll.givers = [seat for seat in seats if (<Seat>seat).has_data]
        poll.first = poll.asked = poll.next = 0
        poll.reserved = poll.flying = poll.left = 0
        found = self.gather(poll, clock())
        return FOREIGN if found == AWAY and self.reading >= READS_MAX else found

    cdef int gather(self, Poll poll, double now) except -1:
        """Goes on with those that give: ENOUGH behind the last one, else AWAY, with as many as may be read at a time and
        likely have room. FOREIGN as soon as one is not for the lane."""
        cdef Seat seat
        cdef int64_t limit
        while poll.next < len(poll.givers) and (poll.room > 0 or poll.empty):
            seat = poll.givers[poll.next]
            if poll.state == READING and not (self.bound(seat, poll.committed, now) and seat.has_data):
                return FOREIGN  # it has changed since it was looked at
            limit = min(poll.room, max(seat.most, 0))
            if poll.reserved and limit < seat.most:
                return AWAY  # it may give more when those before it have given less than they likely will
            if limit or poll.empty:
                if self.give(seat, limit, poll):
                    poll.room -= seat.size
                    poll.empty = poll.empty and poll.reserved != 0  # those before decide it
                elif not seat.away:
                    return FOREIGN
                else:
                    seat.weight = seat.spot.sizes.weigh(seat.spot.state.info.length, limit)
                    if poll.left >= FEW_READS and (
                            poll.left >= MANY_READS or poll.flying + seat.weight > IN_FLIGHT):
                        return AWAY
                    poll.flying += seat.weight
                    poll.left += 1
                    poll.reserved += seat.weight
                    poll.room -= seat.weight
            poll.next += 1
        return AWAY if poll.reserved else ENOUGH

    cdef bint give(self, Seat seat, int64_t limit, Poll poll) except -1:
        """Finds what the partition gives in `Newest`, `limit` bytes of it at most.

        False where it is not there, and `seat.away` is set if it may be read from Redis.
        """
        cdef bint committed = poll.committed, zstd = poll.version >= FETCH_ZSTD
        cdef Spot spot = seat.spot
        cdef object row = self.newest.rows.get(spot.stream)
        cdef object info = spot.state.info
        cdef list found
        cdef int64_t base, end = -1, stable = seat.stable if committed else seat.end
        cdef bytes data
        cdef const uint8_t* at
        cdef bint transactional = False
        if spot.records:
            return self.give_records(seat, limit, poll)
        seat.away = limit
        if row is None or row.lineage is not info.lineage or <int64_t>(<tuple>row.batches[0])[0] > seat.offset:
            return False
        found = []
        for entry in reversed(row.batches):
            found.append(entry)
            if <int64_t>(<tuple>entry)[0] <= seat.offset:
                break
        else:
            return False
        seat.away, seat.batches = 0, []
        for entry in reversed(found):
            batch = (<tuple>entry)[2]
            if type(batch) is not WholeBatch or type(batch.data) is not bytes:
                return False
            data, base = batch.data, (<tuple>entry)[1]
            if seat.size + PyBytes_GET_SIZE(data) > limit:
                if seat.batches or poll.empty:
                    break
                seat.batches, seat.more = None, True  # others have taken its room
                return True
            at = <const uint8_t*>PyBytes_AS_STRING(data)
            if (be16(at + 21) & CODEC) == ZSTD and not zstd:
                return False
            transactional = transactional or (be16(at + 21) & TRANSACTIONAL) != 0
            seat.size += PyBytes_GET_SIZE(data)
            seat.batches.append((base, data))
            end = base + <int32_t>be32(at + 23) + 1
        seat.more = end < stable
        return 0 <= end <= stable and not (committed and transactional and has_aborted(seat, end))

    cdef bint give_records(self, Seat seat, int64_t limit, Poll poll) except -1:
        """The same from the record layout, in which a batch is made of the records once for all who read it."""
        chunk = seat.spot.reader.at_hand(seat.offset, limit, seat.spot.state.info)
        if chunk is None:
            seat.away = limit
            return False
        if not self.serve(seat, chunk, poll.committed, poll.version >= FETCH_ZSTD):
            return False
        if seat.size > limit:
            seat.served, seat.size, seat.more = None, 0, True  # others have taken its room
            return not poll.empty
        return True

    cdef bint serve(self, Seat seat, chunk, bint committed, bint zstd) except -1:
        """Gives a chunk, where it is what the reader may have."""
        cdef int64_t stable = seat.stable if committed else seat.end
        if chunk.end > stable:
            return False
        if committed and chunk.transactional(seat.offset) is not None and has_aborted(seat, chunk.end):
            return False
        seat.served = chunk.served(seat.source.codec, zstd)
        seat.size, seat.more = len(seat.served), chunk.end < stable
        return seat.size > 0

    # -- from Redis

    cdef int bring(self, Poll poll) except -1:
        """Asks for what is away; `brought` is called when all of it is there."""
        cdef Seat seat
        if poll.state != READING:
            poll.settle()
            poll.state, poll.counted, poll.sure = READING, 0, False
            self.reading += 1
        self.responses.count(poll.whole - poll.room - poll.counted)
        poll.counted = poll.whole - poll.room
        asked, poll.asked = poll.givers[poll.asked:poll.next], poll.next
        try:
            for seat in asked:
                if seat.away:
                    self.ask(seat, seat.stable if poll.committed else seat.end, len(poll.givers) > SHARED_MAX)
        except StorageUnavailable:
            self.hand_on(poll)
        return 0

    cdef int ask(self, Seat seat, int64_t end, bint alone) except -1:
        """Asks Redis for the records of one partition; where it is `alone` with them, they are not kept for others."""
        if alone:
            self.reads += 1
            seat.read = self.reads
            seat.spot.reader.post(seat.offset, seat.away, partial(seat._reply, seat.read))
        else:
            seat.coming = seat.spot.reader.bring(seat.offset, seat.away, end, seat.spot.state.info)
            seat.coming.add_done_callback(seat._brought)
        return 0

    cdef int top_up(self, Poll poll) except -1:
        """Some reads have ended, others have not: asks for more."""
        try:
            if self.gather(poll, clock()) == FOREIGN:
                return self.hand_on(poll)
            return self.bring(poll)
        except Exception:
            poll.leave()
            poll.connection.fail()
        return 0

    cdef int brought(self, Poll poll) except -1:
        """All reads have ended."""
        cdef Seat seat
        cdef double now = clock()
        cdef int found
        try:
            if not poll.sure and self.doubt(poll):
                return 0
            poll.room += poll.reserved
            for seat in poll.givers[poll.first:poll.next]:
                if seat.away and not self.arrived(poll, seat, now):
                    return self.hand_on(poll)
            poll.first, poll.reserved, poll.sure = poll.next, 0, False
            found = self.gather(poll, now)
            if found == AWAY:
                return self.bring(poll)
            if found == ENOUGH and has_enough(poll.seats, poll.least):
                return self.answer(poll, now)
            return self.hand_on(poll)
        except Exception:
            poll.leave()
            poll.connection.fail()
        return 0

    cdef bint doubt(self, Poll poll) except -1:
        """Where records came from behind a gap, an archive may have what is missing: asks for the announcements that are
        not known, and says whether there are any."""
        cdef Seat seat
        poll.sure, questions = True, set()
        for seat in poll.givers[poll.first:poll.next]:
            if seat.away:
                asking = seat.spot.reader.asking(seat.chunk, seat.offset)
                if asking is not None:
                    questions.add(asking)
        poll.left = len(questions)
        for asking in questions:
            asking.add_done_callback(poll._told)
        return poll.left != 0

    cdef bint arrived(self, Poll poll, Seat seat, double now) except -1:
        """Gives what has come, by what is known of the partition now: its end may have moved meanwhile. The first one
        gives a record however large (KIP-74)."""
        cdef int64_t limit = seat.away
        chunk, seat.chunk = seat.chunk, None
        if not self.bound(seat, poll.committed, now) or not chunk or not seat.spot.reader.begins_at(chunk, seat.offset):
            return False
        try:
            if not self.serve(seat, chunk, poll.committed, poll.version >= FETCH_ZSTD):
                return False
        except KetchError:
            return False  # it is this partition's alone
        if seat.size > min(limit, poll.room):
            if not poll.empty:
                seat.served, seat.size, seat.more = None, 0, True
            elif seat.size > poll.room and poll.next > poll.first + 1:
                return False  # some behind it were given what was its room
        poll.room -= seat.size
        poll.empty = False
        return True

    # -- waiting

    cdef int wait(self, Poll poll, double now) except -1:
        poll.state, poll.since = WAITING, now
        poll.timer = self.call_later(max(0.0, poll.deadline - now), poll._expire)
        poll.session.waiter.call(poll._wake)
        if poll.session.waiter.changed:
            poll._wake()
        return 0

    cdef int tell(self, Poll poll) except -1:
        self.woken.append(poll)
        if not self.waking and not self.lane.replying:
            self.waking = True
            self.call_soon(self._wake)
        return 0

    def _wake(self):
        self.waking = False
        self.wake()

    cdef int wake(self) except -1:
        """Looks again for all whose streams have changed."""
        cdef Poll poll
        woken, self.woken = self.woken, []
        for poll in woken:
            poll.told = False
            self.resume(poll)
        self.lane.deliver()
        return 0

    cdef int resume(self, Poll poll) except -1:
        """A stream has changed, or the time is up."""
        if poll.state != WAITING:
            return 0
        try:
            self.again(poll, clock())
        except Exception:
            poll.leave()
            poll.connection.fail()
        return 0

    cdef int again(self, Poll poll, double now) except -1:
        cdef Seat seat
        cdef list seats
        cdef int found
        session = poll.session
        poll.waited += now - poll.since
        poll.since = now
        if self.watcher.closing or not session.waiter.changed:
            return self.answer(poll, now)
        self.rights = poll.known_rights
        seats = None if session.is_all_due(now) else self.due(poll, NULL, now)
        if seats is None:
            return self.hand_on(poll)
        found = self.look(poll, seats, now)
        for seat in seats:
            if seat.poll is None:
                seat.poll = poll
                poll.seats.append(seat)
        if found == LITTLE:  # with what was not looked at before
            found = ENOUGH if has_enough(poll.seats, poll.least) else LITTLE
        if found == FOREIGN or (found == LITTLE and has_records(poll.seats)):
            return self.hand_on(poll)
        self.looked(poll, seats, now)
        if found == AWAY:
            self.bring(poll)
        elif found == ENOUGH or poll.timer is None or now >= poll.deadline:
            self.answer(poll, now)
        elif session.waiter.changed:
            poll._wake()
        return 0

    cdef int hand_on(self, Poll poll) except -1:
        """Python looks at all of it again, and makes the answer."""
        cdef Seat seat
        if poll.session is None:
            self.enter(poll, clock())
        session = poll.session
        poll.leave()
        drop(poll.seats)
        for seat in poll.seats:
            target = seat.target
            if session.targets.get(target.key) is target:
                session.behind.pop(target.key, None)  # where it had records: the order is that of the look
                session.behind[target.key] = target
        self.handed_on["fetch"] += 1
        poll.connection.go_on(poll)
        return 0

    # -- answering

    cdef int answer(self, Poll poll, double now) except -1:
        cdef Seat seat
        cdef int64_t size = 0
        cdef int32_t throttled = 0
        session = poll.session
        poll.leave()
        for seat in poll.seats:
            size += seat.size
        if self.quotas.in_force:
            throttled = poll.connection.throttle(FETCHED, poll.client_id, size)
        poll.made = self.written(poll, session.id if session is not None else 0, throttled)
        poll.ready, poll.made_at = True, clock()
        for seat in poll.seats:
            if seat.size:
                self.bytes_out[seat.source.name] += seat.size
                if session is not None:
                    session.served(seat.target)
        drop(poll.seats)
        if session is not None and not session.id:
            session.close()
        poll.seats, poll.session = None, None
        self.requests["fetch"] += 1
        poll.connection.answered(poll)
        self.lane.finished.append(poll)
        return 0

    cdef list written(self, Poll poll, int32_t session_id, int32_t throttled):
        """The response in pieces. What has not changed is left out where there is a session."""
        cdef Out* out = &self.lane.response
        cdef Seat seat
        cdef list cuts = [], pieces = []
        cdef dict told = {}
        cdef int64_t begun = 0, beside = 0
        cdef bint incremental = session_id != 0
        for seat in poll.seats:
            if not incremental or seat.size or (seat.start, seat.end) != seat.target.answered:
                told.setdefault(seat.source.wire, []).append(seat)
                if incremental:
                    seat.target.answered = (seat.start, seat.end)
        out.size, out.failed = 0, False
        begin_fetched(out, poll.version, poll.correlation, throttled, session_id, len(told))
        for wire, of_topic in told.items():
            put_fetched_topic(out, poll.version, span(wire), len(of_topic))
            for seat in of_topic:
                put_fetched(out, poll.version, poll.committed, seat.index, seat.end, seat.stable, seat.start, seat.size)
                if seat.batches is not None:
                    for base, data in seat.batches:
                        put_batch_begin(out, base, PyBytes_GET_SIZE(data))
                        put_piece(out, data, BATCH_BEGIN, cuts)
                elif seat.served is not None:
                    for data in (seat.served,) if type(seat.served) is bytes else seat.served.pieces:
                        put_piece(out, data, 0, cuts)
                end_fetched_part(out, poll.version)
            end_fetched_topic(out, poll.version)
        for _, data in cuts:
            beside += len(data)
        end_fetched(out, poll.version, beside)
        if out.failed:
            raise MemoryError
        for at, data in cuts:
            pieces.append(PyBytes_FromStringAndSize(<char*>out.data + begun, at - begun))
            pieces.append(data)
            begun = at
        pieces.append(PyBytes_FromStringAndSize(<char*>out.data + begun, out.size - begun))
        return pieces

    cdef int note(self, Poll poll, double now) except -1:
        """As `Timekeeper.note`."""
        cdef double queue = poll.begun - poll.received, redis = poll.made_at - poll.begun - poll.waited
        cdef double send = now - poll.made_at, total = now - poll.received
        cdef Lane lane = self.lane
        lane.observe(self.total, total)
        lane.observe(self.queue, queue)
        lane.observe(self.redis, redis)
        lane.observe(self.sending, send)
        if poll.waited:
            lane.observe(self.waiting, poll.waited)
        if total - poll.waited >= lane.slow_after:
            lane.timekeeper.slow(
                "Fetch", "fetch", poll.version, poll.connection.client, queue, redis, send, poll.waited)
        return 0


cdef int put_piece(Out* out, data, int64_t skipped, list cuts) except -1:
    """Puts bytes, but for the first; or notes where they belong, if they are too many to be copied."""
    cdef int64_t size = len(data) - skipped
    if size > ONE_PIECE:
        cuts.append((out.size, memoryview(data)[skipped:]))
    else:
        data = data if type(data) is bytes else bytes(data)
        put(out, PyBytes_AS_STRING(data) + skipped, size)
    return 0


cdef int drop(list seats) except -1:
    """Lets go of the records that were found: seats last as long as their sessions."""
    cdef Seat seat
    for seat in seats:
        seat.batches, seat.served, seat.coming, seat.chunk, seat.read = None, None, None, None, 0
    return 0


cdef bint has_aborted(Seat seat, int64_t end) except -1:
    """Whether records below `end` may be those of aborted transactions, which a reader of committed ones is told of."""
    aborted = seat.spot.state.transactions.aborted_in(seat.offset, end)
    return aborted is None or len(aborted) != 0


cdef bint has_records(list seats) except -1:
    for seat in seats:
        if (<Seat>seat).size:
            return True
    return False


cdef bint has_enough(list seats, int64_t least) except -1:
    """As the handler's `_enough`; there are no errors among them."""
    cdef int64_t size = 0
    for seat in seats:
        size += (<Seat>seat).size
        if (<Seat>seat).more:
            return True
    return size >= least
