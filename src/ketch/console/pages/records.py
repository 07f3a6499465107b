"""The record browser: a partition's records page by page or by key, and one record with the commands that show it."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ketch.configs.settings import Settings
from ketch.console import texts
from ketch.console.pages.topics import name_of
from ketch.console.render import link
from ketch.console.site import Site, number
from ketch.console.sources import Sources
from ketch.console.texts import As
from ketch.errors import ConfigError
from ketch.redis.url import RedisAddress
from ketch.security.acls import Operation
from ketch.store.stream.glances import Glimpse, Match
from ketch.views import records
from ketch.views.records import RecordPage

_RECORDS = 50  # on a page
_VALUE_MAX = 64 << 10  # bytes of one record's value that are shown
_FORMS: tuple[As, ...] = ("text", "json", "hex")


async def browse(site: Site, request: Request) -> Response:
    """A page of records: the last ones, or those from where the query says."""
    name, partition = name_of(request), number(request, "partition", 0, high=2**31)
    site.access(request).want_topic(name, Operation.READ)
    how, key = _search(request)
    where = await _where(site, request, name, partition)
    if key:
        page = await site.ask(records.with_key(site.keys, name, partition, where or 0, how, key, _RECORDS))
    elif where is not None:
        page = await site.ask(records.page(site.keys, name, partition, where, _RECORDS))
    else:
        before = number(request, "before", -1, low=-1)
        page = await site.ask(records.last(site.keys, name, partition, _RECORDS, None if before < 0 else before))
    asked = {field: request.query_params.get(field, "") for field in ("offset", "id", "time", "key", "how")}
    at_end = where is None and not key
    return site.page(request, "records.html", page=page, asked=asked, searched=bool(key), at_end=at_end)


async def _where(site: Site, request: Request, name: str, partition: int) -> int | None:
    """The offset that the query names, in whichever way; None for the end."""
    query = request.query_params
    if query.get("id"):
        return await site.ask(records.offset_of(site.keys, name, partition, query["id"].strip()))
    if query.get("time"):
        found = await site.ask(records.at_time(site.keys, name, partition, moment(query["time"].strip())))
        return 2**62 if found is None else found
    return number(request, "offset", 0) if query.get("offset") else None


def moment(text: str) -> int:
    """A time as a person writes it: epoch ms, or ISO 8601, in UTC where it has no zone."""
    digits = text.removeprefix("@")
    if digits.isdecimal() and len(digits) < 16:
        return int(digits)
    try:
        time = datetime.fromisoformat(text)
        return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ConfigError(f"{text!r} is no time: write it as 2026-01-31T12:00:00, or in epoch milliseconds.") from None


def _search(request: Request) -> tuple[Match, bytes]:
    key = request.query_params.get("key", "")
    return ("has" if request.query_params.get("how") == "has" else "is"), key.encode()


async def record(site: Site, request: Request) -> Response:
    """One record."""
    name, partition = name_of(request), number(request, "partition", 0, high=2**31)
    site.access(request).want_topic(name, Operation.READ)
    page = await site.ask(records.one(site.keys, name, partition, number(request, "offset", 0), _VALUE_MAX))
    if not page.records:
        return RedirectResponse(link("/topic/records", name=name, partition=partition), 303)
    found = page.records[0]
    form = _form(request, found)
    return site.page(
        request,
        "record.html",
        page=page,
        record=found,
        form=form,
        forms=_FORMS,
        value=_shown(found, form),
        redis_cli=redis_cli(site.sources.redis, page, found),
        ketch=ketch_consume(site.sources, page, found),
    )


def _form(request: Request, of: Glimpse) -> As:
    """How the value is shown: as asked for, else as what it seems to be."""
    asked = request.query_params.get("as", "")
    if asked in _FORMS:
        return asked
    data = b"" if of.value is None else of.value.data
    if data[:1] in (b"{", b"[") and texts.as_json(data) is not None:
        return "json"
    return "hex" if b"\0" in data[:1024] else "text"


def _shown(of: Glimpse, form: As) -> str | None:
    """The value as text; None where it is no JSON, as which it was asked for."""
    if of.value is None:
        return ""
    if form == "hex":
        return texts.as_hex(of.value.data)
    return texts.as_json(of.value.data) if form == "json" else texts.text(of.value.data, lines=True)


# -- commands that show the same record


def redis_cli(redis: RedisAddress, page: RecordPage, of: Glimpse) -> str:
    """The redis-cli command that shows the record's entry. It asks for the password where there is one."""
    words = ["redis-cli", *_connection(redis), "XRANGE", page.key.decode(errors="replace"), of.entry_id, of.entry_id]
    return shlex.join(words)


def _connection(redis: RedisAddress) -> list[str]:
    words = ["-s", redis.path] if redis.path is not None else ["-h", redis.host, "-p", str(redis.port)]
    words += ["-c"] if redis.kind == "cluster" else []
    words += ["--tls"] if redis.ssl is not None else []
    words += ["-n", str(redis.db)] if redis.db else []
    words += ["--user", redis.username] if redis.username else []
    return words + (["--askpass"] if redis.password is not None else [])


def ketch_consume(sources: Sources, page: RecordPage, of: Glimpse) -> str:
    """The `ketch` command that prints the record, with key and headers."""
    words = ["ketch", "consume", page.topic, "--partition", str(page.partition), "--from", str(of.offset), "--max", "1"]
    return shlex.join([*words, "--json", "--bootstrap-server", sources.kafka(), *_login(sources.settings())])


def _login(settings: Settings) -> list[str]:
    return ["--command-config", "client.properties"] if settings.authenticates else []
