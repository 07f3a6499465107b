"""The forms that change something, and what becomes of them. They are there with `console_write` alone, and each asks a
person to type the name of what is changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from ketch.console.actions import Actions
from ketch.console.pages.groups import moves
from ketch.console.pages.topics import name_of
from ketch.console.render import link
from ketch.console.site import Site, host_of
from ketch.errors import ConfigError, KetchError

Form = Mapping[str, str]
_Change = Callable[[Site, Actions, Form], Awaitable[str]]


async def new_topic(site: Site, request: Request) -> Response:
    """The form for a topic."""
    if not site.writes:
        return _off()
    return site.page(request, "new_topic.html", form={}, error="", defaults=site.sources.defaults)


async def form(site: Site, request: Request) -> Response:
    """The form of a change of one topic or group: `action` says of which."""
    if not site.writes:
        return _off()
    action = request.query_params.get("action", "")
    if action not in _CHANGES:
        raise ConfigError(f"There is no form {action!r}.")
    given = dict(request.query_params)
    return site.page(request, "change.html", action=action, name=name_of(request), form=given, error="")


async def change(site: Site, request: Request) -> Response:
    """Carries out what a form says; shows the form again, with the reason, where it cannot be."""
    if not site.writes:
        return _off()
    given: Form = request.scope["console.form"]
    action = request.path_params["action"]
    does = _CHANGES.get(action)
    if does is None:
        return PlainTextResponse("there is no such change\n", 404)
    try:
        _confirm(given)
        access = site.access(request)
        if action in ("reset", "delete-group"):
            access.want_group(given["name"])
        target = await does(site, Actions(site, host_of(request), access.user), given)
    except KetchError as error:
        template = "new_topic.html" if action == "create" else "change.html"
        shown = {field: value for field, value in given.items() if field not in ("csrf", "confirm")}
        name = given.get("name", "")
        defaults = site.sources.defaults
        return site.page(
            request, template, 409, action=action, name=name, form=shown, error=str(error), defaults=defaults
        )
    return RedirectResponse(target, 303)


def _off() -> Response:
    return PlainTextResponse("this console shows and does not change: console_write is off\n", 403)


def _confirm(given: Form) -> None:
    """Raises ConfigError where the name was not typed."""
    if not given.get("name") or given.get("confirm", "") != given["name"]:
        raise ConfigError("Nothing was changed: the name that was typed is not this one's.")


def _number(given: Form, field: str, low: int, high: int = 100_000) -> int:
    text = given.get(field, "").strip()
    if not text.isdecimal() or not low <= int(text) <= high:
        raise ConfigError(f"{field} should be a number from {low:,} to {high:,}, not {text!r}.")
    return int(text)


# -- the changes: each returns the page that is shown then


async def _create(site: Site, actions: Actions, given: Form) -> str:
    configs = {
        config: given[field].strip()
        for field, config in (
            ("layout", "storage.layout"),
            ("ids", "offset.ids"),
            ("policy", "cleanup.policy"),
            ("retention", "retention.ms"),
        )
        if given.get(field, "").strip()
    }
    await actions.create_topic(given["name"], _number(given, "partitions", 1, 10_000), configs)
    return link("/topic", name=given["name"])


async def _alter(site: Site, actions: Actions, given: Form) -> str:
    value = None if given.get("default") else given.get("value", "")
    await actions.alter_topic(given["name"], given.get("config", ""), value)
    return link("/topic", name=given["name"], tab="configs")


async def _grow(site: Site, actions: Actions, given: Form) -> str:
    await actions.add_partitions(given["name"], _number(given, "partitions", 1, 10_000))
    return link("/topic", name=given["name"])


async def _delete(site: Site, actions: Actions, given: Form) -> str:
    await actions.delete_topic(given["name"])
    return "/topics"


async def _produce(site: Site, actions: Actions, given: Form) -> str:
    partition = _number(given, "partition", 0)
    key = None if given.get("null_key") else given.get("key", "").encode()
    # A browser sends the ends of lines in a form as \r\n.
    value = None if given.get("null_value") else given.get("value", "").replace("\r\n", "\n").encode()
    headers = [_header(line) for line in given.get("headers", "").splitlines() if line.strip()]
    offset = await actions.produce(given["name"], partition, key, value, headers)
    return link("/topic/record", name=given["name"], partition=partition, offset=offset)


def _header(line: str) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(":")
    if not colon:
        raise ConfigError(f"A header is a line `name: value`, not {line!r}.")
    return name.strip().encode(), value.strip().encode()


async def _reset(site: Site, actions: Actions, given: Form) -> str:
    asked = {field: given.get(field, "") for field in ("to", "value", "topic", "partition")}
    await actions.reset(given["name"], await moves(site, given["name"], asked))
    return link("/group", name=given["name"])


async def _delete_group(site: Site, actions: Actions, given: Form) -> str:
    await actions.delete_group(given["name"])
    return "/groups"


_CHANGES: dict[str, _Change] = {
    "create": _create,
    "alter": _alter,
    "grow": _grow,
    "delete": _delete,
    "produce": _produce,
    "reset": _reset,
    "delete-group": _delete_group,
}
