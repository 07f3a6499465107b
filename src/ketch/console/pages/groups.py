"""Consumer groups: the list, one group with its lag, and what a reset would do."""

from __future__ import annotations

from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from ketch.console.pages.records import moment
from ketch.console.pages.topics import name_of
from ketch.console.site import Paged, Site, number, paged
from ketch.errors import ConfigError
from ketch.views import groups
from ketch.views.groups import Move, To

_GROUPS, _PARTITIONS = 25, 100  # on a page
_TARGETS: tuple[To, ...] = ("earliest", "latest", "time", "offset", "back", "forward")


async def listed(site: Site, request: Request) -> Response:
    search = request.query_params.get("q", "")
    found = site.access(request).groups(await site.ask(groups.names(site.keys, search)))
    page = paged(request, found, _GROUPS)
    return site.page(
        request, "groups.html", q=search, page=page, rows=await site.ask(groups.rows(site.keys, page.items))
    )


async def group(site: Site, request: Request) -> Response:
    name, first = name_of(request), number(request, "from", 0)
    access = site.access(request)
    access.want_group(name)
    found = await site.ask(groups.page(site.keys, name, first, _PARTITIONS))
    known = set(access.topics({each.topic for each in found.partitions}))
    found = replace(found, partitions=tuple(each for each in found.partitions if each.topic in known))
    page = Paged(found.partitions, first, _PARTITIONS, found.total)
    return site.page(request, "group.html", group=found, page=page, targets=_TARGETS)


async def preview(site: Site, request: Request) -> Response:
    """What a reset would do. It changes nothing; the form below it does."""
    name, query = name_of(request), request.query_params
    asked = {field: query.get(field, "") for field in ("to", "value", "topic", "partition")}
    access = site.access(request)
    access.want_group(name)
    found = await moves(site, name, asked)
    known = set(access.topics({each.topic for each in found}))
    found = [each for each in found if each.topic in known]
    return site.page(request, "reset.html", name=name, asked=asked, moves=found)


async def moves(site: Site, name: str, asked: dict[str, str]) -> list[Move]:
    """What a reset does, by the fields of its form; raises ConfigError where these say nothing that can be done."""
    to, value = asked["to"], asked["value"].strip()
    if to not in _TARGETS:
        raise ConfigError(f"A reset goes to one of {', '.join(_TARGETS)}.")
    amount = 0
    if to == "time":
        amount = moment(value)
    elif to in ("offset", "back", "forward"):
        if not value.isdecimal() or len(value) > 19:
            raise ConfigError(f"A reset to {to} needs a number, not {value!r}.")
        amount = int(value)
    partition = asked["partition"].strip()
    if partition and not partition.isdecimal():
        raise ConfigError(f"{partition!r} is no partition.")
    only = int(partition) if partition else None
    return await site.ask(groups.moves(site.keys, name, to, amount, asked["topic"].strip(), only))
