"""The archive: the topics that have one, and one topic's partitions, data files and snapshots."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ketch.console.pages.topics import name_of
from ketch.console.site import Paged, Site, number, paged
from ketch.console.traffic import by_topic
from ketch.errors import StorageUnavailable
from ketch.views import archives, listing

_TOPICS, _PARTITIONS, _FILES, _SNAPSHOTS = 50, 100, 100, 100  # on a page
TABS = ("partitions", "files", "snapshots")


async def listed(site: Site, request: Request) -> Response:
    """The topics with an archive: when the job announced it last, and what waits."""
    search = request.query_params.get("q", "")
    access = site.access(request)
    known = access.topics(await site.ask(listing.names(site.keys, search)))
    page = paged(request, await site.ask(archives.existing(site.keys, known)), _TOPICS)
    rows = await site.ask(archives.rows(site.keys, page.items))
    cold = [row for row in _cold_reads() if access.topics(row[:1])]
    return site.page(request, "archive.html", q=search, page=page, rows=rows, cold=cold)


def _cold_reads() -> list[tuple[str, float, float, float]]:
    """Topic, reads of the archive for fetches, bytes of them, and how many failed; since this broker started."""
    reads, sizes, errors = (by_topic(f"ketch_remote_fetch_{each}_total") for each in ("requests", "bytes", "errors"))
    return [(topic, count, sizes.get(topic, 0), errors.get(topic, 0)) for topic, count in sorted(reads.items())]


async def topic(site: Site, request: Request) -> Response:
    """One topic's archive."""
    name, tab = name_of(request), request.query_params.get("tab", TABS[0])
    site.access(request).want_topic(name)
    tab, first = tab if tab in TABS else TABS[0], number(request, "from", 0)
    found, partitions = await site.ask(archives.page(site.keys, name, first if tab == TABS[0] else 0, _PARTITIONS))
    partition = number(request, "partition", -1, low=-1)
    rows = [each for each in partitions if each.through is not None] if tab == TABS[0] else []
    page = Paged(rows, first, _PARTITIONS, found.partitions)
    missing, reading = "", False
    if tab != TABS[0]:
        try:
            looked = await _table(site, name, tab, first, None if partition < 0 else partition)
            page, reading = looked or Paged((), 0, 1, 0), looked is None
        except StorageUnavailable as error:
            page, missing = Paged((), 0, 1, 0), str(error)
    return site.page(
        request,
        "archive_topic.html",
        name=name,
        archive=found,
        tab=tab,
        page=page,
        partition=partition,
        root=_root(found.announced.metadata),
        missing=missing,
        reading=reading,
    )


async def _table(site: Site, name: str, tab: str, first: int, partition: int | None) -> Paged | None:
    """A page of the table's files or snapshots; None where they are being read yet."""
    tables = site.sources.tables
    if tab == "files":
        some = await site.soon(("files", name, first, partition), tables.files(name, first, _FILES, partition))
        return None if some is None else Paged(some[1], first, _FILES, some[0])
    every = await site.soon(("snapshots", name), tables.snapshots(name))
    if every is None:
        return None
    return Paged(every[first : first + _SNAPSHOTS], first, _SNAPSHOTS, len(every))


def _root(metadata: str) -> str:
    """The table's directory, by where its metadata is, with a slash at the end; empty where that says nothing."""
    before, found, _ = metadata.rpartition("/metadata/")
    return f"{before}/" if found else ""
