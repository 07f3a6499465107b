"""The ACLs as this broker knows them, and what each connection may do by them.

It owns the broker's copy of the ACLs (`security.rules` decides by it) and each connection's decisions, which are void
as soon as the copy is another one. What lies in Redis is `store.access.acls`'s. The pipeline and the handlers ask
through `api.Request`; nothing of a request is known here.

The copy is as fresh as Redis's pushes: the key is read over the connection that has client tracking (`log.watcher`),
so any change of it, by a broker or by redis-cli, has it read again. The cases:

- A change comes while the key is read: its waiter was added before the question, so the key is read once more.
- The connection is lost, and pushes with it: the watcher wakes its waiters for every key, so all is read again.
- The connection hangs: once a second it is asked how many ACLs there are, which ends with an error where it does.
- Redis is gone: the last copy stays in force, since nothing can be changed. At the start there is none yet, and then
  the broker does not listen; should anybody ask before that, none but a super user is allowed anything.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from ketch.broker.access.audit import Audit
from ketch.broker.caller import ANONYMOUS, Caller
from ketch.configs.settings import Settings
from ketch.errors import StorageUnavailable
from ketch.log.log import Log
from ketch.security.acls import CLUSTER_NAME, Acl, Filter, Operation, ResourceType
from ketch.security.rules import DEFAULT_DENY, Decision, Rules
from ketch.store.access import acls as stored
from ketch.tasks import taking_turns

log = logging.getLogger(__name__)

_LOOK_S = 0.5  # between two looks whether the connection still brings pushes
_TOGETHER_S = 0.02  # changes that follow each other so closely are read at once
_DECISIONS_MAX = 10_000  # of a connection: a client may name what it likes


class Authorizer:
    """Kafka's StandardAuthorizer of one broker.

    Args:
        settings: those at the start: `super_users`, `allow_everyone_if_no_acl_found`.

    Attributes:
        rules: the ACLs now; another object with each change.
        audit: takes down what was decided.
    """

    def __init__(self, settings: Settings, log_: Log) -> None:
        self._log, self._waiter = log_, log_.watcher.waiter()
        self._super_users = settings.super_user_principals
        self._allow_if_none = settings.allow_everyone_if_no_acl_found
        self.rules = Rules(None, self._super_users, self._allow_if_none)
        self.audit = Audit(settings.audit_log, settings.audit_level)
        self._members: set[bytes] | None = None  # as they were read; None: not yet
        self._acls: dict[bytes, Acl] = {}  # those of them that can be read
        self._reading = asyncio.Lock()

    async def refresh(self) -> None:
        """Reads the ACLs as Redis has them now; raises StorageUnavailable where it is gone."""
        async with self._reading:
            self._waiter.take()
            self._waiter.add_key(self._log.keys.acls)
            try:
                members = set(await self._log.watcher.ask(stored.read(self._log.keys)))
                if members != self._members:
                    # Of tens of thousands of ACLs it takes a while, in which other requests are served.
                    self._acls, self.rules = await asyncio.to_thread(self._read, members)
                    self._members = members
                    log.info("%d ACLs are in force", len(self.rules.acls))
            except BaseException:
                self._waiter.fire(self._log.keys.acls)  # it is still to be read
                raise

    def _read(self, members: set[bytes]) -> tuple[dict[bytes, Acl], Rules]:
        acls = stored.parsed(members, self._acls)
        return acls, Rules(acls.values(), self._super_users, self._allow_if_none)

    async def stay(self) -> None:
        """Follows the ACLs, until cancelled."""
        while True:
            try:
                await self._look()
            except StorageUnavailable:  # the links say so themselves
                await asyncio.sleep(_LOOK_S)
            except Exception:  # the next look must come all the same
                log.exception("ACLs")
                await asyncio.sleep(_LOOK_S)
            self.audit.settle(time.monotonic())

    async def _look(self) -> None:
        if await self._waiter.wait(_LOOK_S):
            await asyncio.sleep(_TOGETHER_S)
            await self.refresh()
        elif await self._log.watcher.ask(stored.count(self._log.keys)) != len(self._members or ()):
            await self.refresh()

    def rights(self, caller: Caller) -> Rights:
        """What a caller may do, to be kept as long as its connection has this caller."""
        return Rights(self, caller)

    def anonymous(self, host: str) -> Callable[[Operation, str, str], bool]:
        """Whether a client of Kafka 0.7 may do something to a topic; to create one is a right of the cluster, too."""
        rights = self.rights(Caller(ANONYMOUS, "LEGACY07", f"/{host}"))

        def allows(operation: Operation, topic: str, request: str) -> bool:
            asked = [(ResourceType.TOPIC, topic)]
            if operation is Operation.CREATE:
                asked.insert(0, (ResourceType.CLUSTER, CLUSTER_NAME))
            decisions = [rights.decide(operation, resource, name) for resource, name in asked]
            allowed = [decision for decision in decisions if decision.allowed]
            decision = (allowed or decisions)[-1]
            if self.audit.on and (self.audit.all or not decision.allowed):
                self.audit.note(decision, rights.caller, "", request, operation, ResourceType.TOPIC, topic)
            return decision.allowed

        return allows

    # -- changes; each is in force here when it returns

    async def add(self, acls: Sequence[Acl]) -> None:
        """Adds ACLs, all or none; raises StorageUnavailable."""
        if acls:
            await self._log.driver.ask(stored.add(self._log.keys, acls))
            await self.refresh()

    async def remove(self, wanted: Sequence[Filter]) -> list[list[Acl]]:
        """Removes what filters mean, all or none. What each has removed, an ACL more than once where several mean it.

        Raises:
            StorageUnavailable: Redis is gone.
        """
        await self.refresh()
        rules = self.rules
        found = [rules.chosen(each) async for each in taking_turns(wanted, 1)]  # each looks at all ACLs
        gone = {acl for acls in found for acl in acls}
        members = [member for member, acl in self._acls.items() if acl in gone]
        if members:
            await self._log.driver.ask(stored.remove(self._log.keys, members))
            await self.refresh()
        return found

    async def chosen(self, wanted: Filter) -> list[Acl]:
        """The ACLs that a filter means, as Redis has them now; raises StorageUnavailable."""
        await self.refresh()
        return self.rules.chosen(wanted)


class Rights:
    """What one caller may do: the decisions of one connection, each made once and kept until the ACLs change.

    Attributes:
        caller: whose rights they are. A connection whose caller changes needs others.
        audit: takes down what was decided.
    """

    __slots__ = ("_authorizer", "_decisions", "_host", "audit", "caller", "rules")

    def __init__(self, authorizer: Authorizer, caller: Caller) -> None:
        self._authorizer, self.caller, self.audit = authorizer, caller, authorizer.audit
        self._host = caller.address
        self.rules = authorizer.rules
        self._decisions: dict[tuple[Operation, ResourceType, str | None], Decision] = {}

    @property
    def stamp(self) -> object:
        """Another object as soon as decisions may be other ones."""
        return self._authorizer.rules

    def decide(self, operation: Operation, resource: ResourceType, name: str | None) -> Decision:
        """Whether the caller may do something to a resource; None stands for any one of the type."""
        if self.rules is not self._authorizer.rules or len(self._decisions) > _DECISIONS_MAX:
            self.rules = self._authorizer.rules
            self._decisions.clear()
        found = self._decisions.get((operation, resource, name))
        if found is None:
            found = self._decisions[operation, resource, name] = self._decide(operation, resource, name)
        return found

    def _decide(self, operation: Operation, resource: ResourceType, name: str | None) -> Decision:
        principal = self.caller.principal
        if name is not None:
            return self.rules.decide(principal, self._host, operation, resource, name)
        allowed = self.rules.allows_any(principal, self._host, operation, resource)
        return Decision(True, "AnyResource") if allowed else DEFAULT_DENY
