"""Connections, the settings, and logging in."""

from __future__ import annotations

import logging

from pydantic.fields import FieldInfo
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ketch.configs.refusal import extra, is_secret
from ketch.configs.settings import Settings
from ketch.console.site import Site, host_of, paged
from ketch.redis.url import RedisAddress
from ketch.security.acls import Operation

log = logging.getLogger(__name__)

_CLIENTS = 200  # on a page


async def clients(site: Site, request: Request) -> Response:
    """The connections to this broker, the one that holds most first; a user's own where it may not see others."""
    access = site.access(request)
    sees = access.of_cluster(Operation.DESCRIBE)
    search = request.query_params.get("q", "").lower()
    found = [
        each
        for each in site.sources.clients()
        if (sees or each.principal == f"User:{access.user}")
        and search in f"{each.peer} {each.client_id} {each.principal} {' '.join(each.software)}".lower()
    ]
    found.sort(key=lambda each: (-each.held, each.idle))
    return site.page(request, "clients.html", q=search, page=paged(request, found, _CLIENTS))


async def settings(site: Site, request: Request) -> Response:
    """All settings as they are, secrets left out; what differs from its default stands out."""
    site.access(request).want_cluster(Operation.DESCRIBE_CONFIGS)
    now = site.sources.settings()
    rows = [
        (name, _value(now, name, field), field.description or "", getattr(now, name) != field.default)
        for name, field in Settings.model_fields.items()
    ]
    return site.page(request, "settings.html", rows=rows)


def _value(settings: Settings, name: str, field: FieldInfo) -> str:
    value = getattr(settings, name)
    if value in (None, "", {}):
        return ""
    if is_secret(field) or extra(field).get("table"):
        return "(set)"
    if name == "redis":  # it may have a password
        return RedisAddress.of(settings).describe()
    return str(value).lower() if isinstance(value, bool) else str(value)


async def login(site: Site, request: Request) -> Response:
    return _login(site, request, request.query_params.get("next", "/"))


def _login(site: Site, request: Request, target: str, status: int = 200) -> Response:
    guard = site.guard
    assert guard is not None
    asks = {"passwords": guard.passwords, "token": guard.has_token}
    return site.page(request, "login.html", status, next=_local(target), wrong=status != 200, **asks)


async def enter(site: Site, request: Request) -> Response:
    """The token was given, or a user with a password."""
    form, guard = request.scope["console.form"], site.guard
    assert guard is not None
    user, target = form.get("user", ""), form.get("next", "/")
    if user:
        known = guard.passwords and "\0" not in user and await site.sources.knows(user, form.get("password", ""))
        log.info("console: %s at %s %s", user, host_of(request), "has logged in" if known else "was not let in")
    else:
        known = guard.opens(form.get("token", ""))
    if not known:
        return _login(site, request, target, 401)
    return guard.let_in(request, RedirectResponse(_local(target), 303), user or None)


async def leave(site: Site, request: Request) -> Response:
    """Ends the session."""
    assert site.guard is not None
    return site.guard.let_out(request, RedirectResponse("/login", 303))


def _local(target: str) -> str:
    """A path of the console; / for what could lead to another site."""
    return target if target.startswith("/") and not target.startswith(("//", "/\\")) else "/"
