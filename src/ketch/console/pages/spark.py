"""Spark's streaming queries: those that read, those that write, and how far one has read the partitions of a topic."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ketch.console.pages.topics import name_of
from ketch.console.site import Site, paged
from ketch.views import listing
from ketch.views import spark as queries

_TOPICS, _PARTITIONS = 500, 100  # on a page


async def listed(site: Site, request: Request) -> Response:
    """The queries of some topics."""
    search = request.query_params.get("q", "")
    known = site.access(request).topics(await site.ask(listing.names(site.keys, search)))
    page = paged(request, known, _TOPICS)
    found = await site.ask(queries.queries(site.keys, page.items))
    return site.page(request, "spark.html", q=search, page=page, found=found)


async def reading(site: Site, request: Request) -> Response:
    """How far a query has read a topic."""
    name, topic = name_of(request), request.query_params.get("topic", "")
    site.access(request).want_topic(topic)
    page = paged(request, await site.ask(queries.reading(site.keys, name, topic)), _PARTITIONS)
    return site.page(request, "spark_reading.html", id=name, topic=topic, page=page)
