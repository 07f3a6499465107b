"""HTML from templates: Jinja2 with everything escaped, and the filters that show numbers, times and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

import ketch
from ketch.console import texts


def environment() -> Environment:
    """The templates of this package."""
    made = Environment(
        loader=PackageLoader("ketch.console", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for name in ("text", "brief", "number", "size", "duration", "when", "ago", "printable"):
        made.filters[name] = getattr(texts, name)
    made.globals |= {"link": link, "version": ketch.__version__}
    return made


def link(path: str, **query: Any) -> str:
    """A path of the console with a query; what is None or empty is left out."""
    given: Mapping[str, Any] = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path
