"""The hot path without Python: the common Produce request goes from its connection's bytes to the command for Redis,
and from Redis's reply to the response's bytes, in one piece of C and Cython, and so does the common Fetch from its
bytes to what is in memory or one read away, or to a wait for it. It adds speed and never a second meaning: a request
with anything that it does not know goes through the pipeline (`broker.connection`), as without the lane.

It takes a request whole or not at all. What it takes of Fetch is below; of the rest Produce v3 to v13 of any acks, for
partitions that are known, plain, idempotent and transactional batches, on topics that want nothing done to a batch;
with the append module. It takes nothing while the connection's worker has a request, nor where something
is in force that needs Python: an audit log of what is allowed, quotas of the time that requests take, spans, a pause
for want of memory, a Redis that is behind. What a client may do it asks by the connection's `Rights`, which keep their
decisions until the ACLs change; what is denied, and a client that has not authenticated or whose session has ended, is
the pipeline's. What a quota of bytes makes a client wait is counted when the answer is made, as there. Behind a fetch
that it has answered it asks the connection anew whether it may take another request: the client may not read what it
gets, or may have to wait.

Whose a partition's state is. There is one `AppendState` for both ways, and the event loop's thread alone changes it:
the lane reads and writes it as the appender does. So a batch of Python may follow one of the lane, and the other way
round, and nothing has to be handed over first. The lane makes two of the transitions in `log.appending.state` itself,
those of a stream that nobody else writes to. For every other one it calls Python. A batch of the lane (`Flight`) stands
in `AppendState.flying` and in the pipe's line of replies, a request (`Answer`) in its connection's line of responses.

State and event of a request, and who has it then:

=============== =============================================== ============= =========================================
state           event                                           next          what happens
=============== =============================================== ============= =========================================
received        it, or one before it, is not for the lane       Python's      nothing was changed; the worker serves it
received        all of it was recognised                        sent          every batch is placed, then all are sent
sent            a reply says that a batch is stored as expected sent, or      the stream's end moves, waiting fetches
                                                                answered      are woken (`AppendState.landed`)
sent            all batches are stored                          answered      its response is written when those before
                                                                              it are, once for all replies of a read
sent            any other reply: refused, stored elsewhere, an  taken back    the batch becomes an `Append` of Python,
                error                                                         which the appender treats as its own
sent            the connection to Redis is lost                 taken back    the same, of every batch
sent            its deadline comes                              taken back    Python answers with an error; what is
                                                                              stored later is stored
sent            its client is gone                              sent          the batches are stored all the same
taken back      a batch of it is stored, or fails               taken back    its future gets the result, for which
                                                                              `broker.handlers.produce.resume` waits
=============== =============================================== ============= =========================================

On a Redis Cluster a batch goes over the connection to the node that has its slot. An answer of that node other than the
expected one is the cluster's link's first, as is every answer while commands of some slot wait there
(`redis.cluster.ClusterLink.answered`): when the slot has moved, the link sends the batch where it belongs, and what
comes of that is the event `a reply`.

A partition is for the lane in one state of `AppendState` alone: mode OURS, no foreign write, nothing that waits, no
marker on its way, and the stream's end and the log's start known and fresh. A batch is, where it is the next one of a
producer that is known, its checksum is right, and `TopicNotes` has nothing to note of it.

Fetch. It takes v4 to v16, of a session that is kept (KIP-227) or without one; what opens or closes a session is
Python's. Every partition that is due (`broker.sessions`) has to be known, readable by the client, without a cold tier
and without copies to wait for, and to be at its end, or to have what comes next in `log.recent` or in Redis. What a
member of a group gets is Python's, too, as its native group follows. A look changes nothing: only when all of it was
found does the lane do to the session what the handler does (`broker.handlers.fetch`), and reads and answers by the same
rules. What has to come from Redis is read a megabyte at a time, of 4 to 32 partitions, and more is asked for while that
comes, so that Redis and the broker work at the same time. How much a partition will give is reckoned by its length and
the size of its entries. One that gives more than there is room for gives it with the next fetch.

=============== =============================================== ============= =========================================
state           event                                           next          what happens
=============== =============================================== ============= =========================================
received        it is not for the lane, or a partition is not,  Python's      nothing was changed; the worker serves it
                or there is less than min_bytes, yet something
received        there is enough, or it does not wait            answered      its response is written when those before
                                                                              it are
received        all was found, but some records are in Redis    reading       `log.reading` asks for them; it has the
                                                                              place of its connection's worker
received        all is at its end                               waiting       its session's waiter calls it; it has the
                                                                              place of its connection's worker, so that
                                                                              what comes behind it waits
reading         some replies are there                          reading       the next partitions are looked at anew and
                                                                              asked for, as far as they all have room
reading         all replies are there, and others are to give   reading       these are looked at anew and asked for
reading         all replies are there, and are for the lane     answered      by the partitions' ends as they are now
reading         all replies are there, but it is not known      reading       each topic's announcement is asked for
                whether an archive has what is missing there
reading         a reply is an error or not for the lane, or     handed on     `broker.handlers.fetch.go_on` makes the
                all give less than min_bytes                                  answer; all looked at is due again
reading         its client is gone                              gone          replies are nobody's, or other readers'
waiting         a stream has changed, and now there is enough   answered      with all others that one read from Redis
                                                                              has woken, in the same turn
waiting         a stream has changed, and records are in Redis  reading
waiting         a stream has changed, and still all is at its   waiting
                end
waiting         a stream has changed otherwise: by another      handed on
                client, or its records are not for the lane
waiting         its time is up, or the broker stops             answered      by what was last found
waiting         its client is gone                              gone          its session stays, if it has an id
=============== =============================================== ============= =========================================

csrc/ has what is bytes in and bytes out: frame.h for both, request.h, redis.h and response.h for Produce, fetch.h for
Fetch. `_kernel.pyx` has all else, that of Fetch in `_kernel_fetch.pxi`. The lane asks Redis for nothing but records and
what archives have, writes no error, logs nothing but what was slow, and waits for nothing but replies, changes of
streams and deadlines.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Protocol

from ketch.configs.settings import Settings
from ketch.connections.budget import Gate
from ketch.connections.room import ResponseRoom
from ketch.log.appending.notes import TopicNotes
from ketch.log.log import Log
from ketch.logs import ClientName

if TYPE_CHECKING:
    from ketch.lane._kernel import Lane

__all__ = ["Lane", "open_lane"]

log = logging.getLogger(__name__)


class _Limits(Protocol):
    in_force: bool
    timing: bool


class _Audit(Protocol):
    all: bool


class _Authorizer(Protocol):
    @property
    def audit(self) -> _Audit: ...


class _Timekeeper(Protocol):
    slow_after: float

    def slow(
        self,
        api: str,
        metric: str,
        version: int,
        client: ClientName,
        queue: float,
        redis: float,
        send: float,
        waited: float = 0.0,
    ) -> None: ...


class Host(Protocol):
    """What the lane uses of the broker.

    Attributes:
        authorizer: None where everyone may do everything.
        quotas: whether any are in force, and whether any are of the time that requests take.
        timekeeper: takes what was slow.
        sessions, assignments: those of fetches, as `broker.sessions` and `broker.coordination.assignments` have them.
    """

    settings: Settings
    log: Log
    topic_notes: TopicNotes
    inflated: Gate

    @property
    def sessions(self) -> object: ...
    @property
    def assignments(self) -> object: ...
    @property
    def responses(self) -> ResponseRoom: ...
    @property
    def authorizer(self) -> _Authorizer | None: ...
    @property
    def quotas(self) -> _Limits: ...
    @property
    def timekeeper(self) -> _Timekeeper: ...


def open_lane(broker: Host) -> Lane | None:
    """The lane of a broker, where its settings want one and there can be one.

    It is to be called on the event loop that the broker runs on.
    """
    wanted = broker.settings.lane
    if wanted == "off" or os.environ.get("KETCH_KERNEL") == "python":
        return None
    level = logging.INFO if "lane" in broker.settings.model_fields_set else logging.DEBUG  # whether it was asked for
    if broker.settings.otlp_endpoint is not None:
        log.log(level, "lane: none, as spans are made (otlp_endpoint)")
        return None
    try:
        from ketch.lane._kernel import Lane
    except ImportError:
        log.log(level, "lane: none, as it was not compiled")
        return None
    return Lane(broker, asyncio.get_running_loop(), wanted == "coin")
