"""Topics: the list, and one topic's partitions, configs and live tail."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from ketch.configs.topic_table import CONFIGS
from ketch.console.site import Paged, Site, number, paged
from ketch.errors import ConfigError, KetchError
from ketch.security.acls import Operation, ResourceType
from ketch.views import listing, tailing
from ketch.views.listing import TopicPage

_TOPICS, _PARTITIONS = 50, 100  # on a page
_TAIL_S = 0.5
_TAIL_MAX = 100  # records of one look at a tail
TABS = ("partitions", "configs", "tail")


async def topics(site: Site, request: Request) -> Response:
    search = request.query_params.get("q", "")
    found = site.access(request).topics(await site.ask(listing.names(site.keys, search)))
    page = paged(request, found, _TOPICS)
    rows = await site.ask(listing.rows(site.keys, page.items))
    return site.page(request, "topics.html", q=search, page=page, rows=rows, rates=site.rates.look())


async def topic(site: Site, request: Request) -> Response:
    name, tab = name_of(request), request.query_params.get("tab", TABS[0])
    first = number(request, "from", 0)
    access = site.access(request)
    access.want_topic(name)
    found = await _topic(site, name, first)
    if not access.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
        found = replace(found, configs=())
    page = Paged(found.rows, first, _PARTITIONS, found.partitions)
    changed = [config for config in found.configs if config.own]
    return site.page(
        request,
        "topic.html",
        topic=found,
        tab=tab if tab in TABS else TABS[0],
        page=page,
        changed=changed,
        alterable=sorted(config for config, key in CONFIGS.items() if not key.fixed),
    )


async def _topic(site: Site, name: str, first: int) -> TopicPage:
    return await site.ask(listing.topic_page(site.keys, name, first, _PARTITIONS, site.sources.defaults))


def name_of(request: Request) -> str:
    """The topic or group that the query names; raises ConfigError where it names none."""
    name = request.query_params.get("name", "")
    if not name:
        raise ConfigError("The address names nothing.")
    return name


async def tail(site: Site, request: Request) -> Response:
    """The records that come in from now on, as events with a row of the table each."""
    name = name_of(request)
    site.access(request).want_topic(name, Operation.READ)
    return site.live(_tail(site, name, await site.ask(tailing.ends(site.keys, name))))


async def _tail(site: Site, name: str, ends: Mapping[int, int]) -> AsyncIterator[tuple[str, str]]:
    template = site.templates.get_template("tail_rows.html")
    while True:
        await asyncio.sleep(_TAIL_S)
        try:
            seen = await site.ask(tailing.since(site.keys, name, ends, _TAIL_MAX))
        except KetchError as error:
            yield "tail", template.render(rows=[], topic=name, cut=False, error=str(error))
            return
        ends = seen.ends
        if seen.records:
            yield "tail", template.render(rows=seen.records[::-1], topic=name, cut=seen.cut, error="")
