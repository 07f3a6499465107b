"""The overview: rates, brokers, Redis nodes, and what needs somebody's attention. Live by server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import Response

from ketch.clock import now_ms
from ketch.console.site import Site
from ketch.console.texts import duration
from ketch.security.acls import Operation
from ketch.views import archives, listing, nodes
from ketch.views.health import Check
from ketch.views.nodes import RedisNode

_ARCHIVES_MAX = 500  # topics whose archives are looked at for alerts


async def overview(site: Site, request: Request) -> Response:
    access = site.access(request)
    found = access.topics(await site.ask(listing.names(site.keys)))
    sees = access.of_cluster(Operation.DESCRIBE)
    servers, alerts = await asyncio.gather(_servers(site), _alerts(site, found, sees))
    return site.page(
        request,
        "overview.html",
        topics=len(found),
        servers=servers if sees else [],
        alerts=alerts,
        brokers=site.sources.nodes(),
        own=site.sources.settings().node_id,
        samples=json.dumps([asdict(sample) for sample in site.traffic.samples]),
        clients=len(site.sources.clients()),
        redis=site.sources.redis.describe(),
        cluster_id=site.sources.cluster_id,
    )


async def live(site: Site, request: Request) -> Response:
    return site.live(_samples(site))


async def _samples(site: Site) -> AsyncIterator[tuple[str, str]]:
    async for sample in site.traffic.follow():
        yield "sample", json.dumps(asdict(sample))


async def _servers(site: Site) -> list[RedisNode]:
    return await site.sources.driver.ask_each(nodes.node)


async def _alerts(site: Site, topics: list[str], sees: bool) -> list[Check]:
    """Everything that is not as it should be, the worst first; of Redis where its nodes may be seen."""
    found = [await site.health.look() if sees else [], await _archives(site, topics)]
    alerts = [check for checks in found for check in checks if check.verdict != "ok"]
    return sorted(alerts, key=lambda check: check.verdict != "fail")


async def _archives(site: Site, topics: list[str]) -> list[Check]:
    """Archives that stand still while records wait for them."""
    archived = await site.ask(archives.existing(site.keys, topics))
    announced = await site.ask(archives.announcements(site.keys, archived[:_ARCHIVES_MAX]))
    now, stall = now_ms(), site.sources.settings().archive_stall_ms
    still = {name: age for name, each in announced.items() if (age := now - each.updated) > stall}
    checks = []
    for row in await site.ask(listing.rows(site.keys, list(still))):
        if row.archived == "behind":
            seen = f"nothing of {row.name} was archived for {duration(still[row.name] / 1000)}, and records wait"
            checks.append(Check("archive stands still", "warn", seen, "look at the job, `ketch archive run`"))
    return checks
