"""Terms: a broker that is no longer a group's coordinator cannot write the group's membership or commits any more.

A term is a number that rises with every change of coordinator. The group's hash `{ks}:group:{id}` holds the current
one, in `term`, and the broker process that took it, in `session`. Beside each commit key, in its slot of a Redis
Cluster, lies `{ks}:commit-term:{commit key}` with the term in which the commit was stored. Scripts compare and set
these: HOLD and SAVE (hold_state.lua, save_state.lua), STORE and REMOVE (store_commit.lua, remove_commit.lua);
`store.coordination.groups` and `store.coordination.commits` send them. This file owns the rules. HOLD and SAVE serve
any state that one broker coordinates, not groups alone.

A broker judges a request by a group that it loaded before. So each write says in which term the group was loaded, and a
script compares. No script needs two slots; the order of the writes makes it safe:

1. HOLD, on the group's hash. The term there must be the one in which the group was loaded. Where another process holds
   it, HOLD replaces it by a higher one. SAVE does the same and writes the membership. Where the term is the process's
   own already, HOLD would write nothing, so a plain read of `term` and `session` is enough. Where the group was loaded
   after the request had come, that was this read (`broker.coordination.machines.Machines.hold`).
2. STORE, on each commit key. The term beside it must not be higher than the one from step 1.

What can happen when a coordinator A is paused, or cut off from Redis, and B takes its place:

- A is paused before step 1, with the group in memory. B's first write took a higher term. HOLD refuses, so A stores
  nothing: neither what B has overtaken nor what B has yet to write.
- A is paused between the steps, or between loading and judging, or Redis gets A's step 2 late. Where B has stored a
  commit, its term is higher and STORE refuses. Where B has not, A's commit was judged by the group as it was before B
  took over, and it is stored as if it had come a moment earlier.
- A does not have the group in memory and loads it when it wakes. It then sees B's term and could take a higher one. It
  must not for a request that it received while it was paused: `may_take` is False unless A had announced itself
  within the brokers' session timeout when it received the request (`broker.coordination.cluster.Cluster.leased_at`).
  Without it HOLD refuses to take a term from another process. A heartbeat that changes nothing is stored nowhere and
  takes no term: so the same broker may have answered the group's heartbeats just before it refuses a commit.
- Both take themselves for the coordinator, for the moment in which they see different brokers. Each takes the term from
  the other with every write, and each then loads the group again. Redis orders the writes.
- The group is deleted, and its term with it, unless it was written after HOLD (DELETE, delete_state.lua). HOLD refuses
  brokers that loaded it before. The next term is taken from Redis's clock, so it is higher than any that was given
  before.
- Redis has lost the group's hash but not a commit's term (the shards of a cluster lose different writes), and its clock
  has gone back. STORE tells the commit's term and HOLD takes one that is higher.

A state that several brokers write at the same time, as a transactional id's, needs more: a term that its holder keeps
over many writes hides them from a broker that loaded the state between two of them. There each SAVE takes a new term.

An offset SET by hand has no term of its own: it counts, and the next commit overwrites it.
"""

from __future__ import annotations

from typing import Any

from ketch.errors import NotCoordinator


class Overtaken(NotCoordinator):
    """A group, or a commit, has been written in a later term than the one it was loaded in.

    Args:
        what: its name in the message: "group orders".

    Attributes:
        session: whose term it is; empty where that is not known.
        term: that term, or -1.
    """

    def __init__(self, what: str, session: str = "", term: int = -1) -> None:
        super().__init__(f"{what} was written by another coordinator{f' ({session})' * bool(session)}")
        self.session, self.term = session, term


def granted(what: str, reply: Any) -> str:
    """The term that HOLD or SAVE gave, from the parsed reply; raises Overtaken where it gave none."""
    free, told = reply
    if not free:
        raise Overtaken(what, told.decode())
    term: str = told.decode()
    return term
