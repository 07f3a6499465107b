"""Visits to the console without a browser: plain requests, with the cookie and the form's token that it keeps."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.client import HTTPConnection
from urllib.parse import urlencode

from tests.support import http
from tests.support.ketch import KetchServer

LIMIT = 60  # s


@dataclass
class Answer:
    """What the console answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def location(self) -> str:
        return self.headers.get("location", "")

    def table(self, number: int = 0) -> list[list[str]]:
        """The cells of a table's body, without the white space around them."""
        return _Tables.of(self.text)[number]

    def codes(self) -> list[str]:
        """What the page offers to copy."""
        return [html.unescape(code) for code in re.findall(r'data-copy="([^"]*)"', self.text)]


@dataclass
class Visitor:
    """A browser without eyes.

    Attributes:
        place: HOST:PORT.
        cookies: by name.
    """

    place: str
    cookies: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, server: KetchServer) -> Visitor:
        return cls(http.url(server).removeprefix("http://"))

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> Answer:
        """One request; no redirect is followed."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookies:
            sent.setdefault("Cookie", "; ".join(f"{name}={value}" for name, value in self.cookies.items()))
        with closing(HTTPConnection(self.place, timeout=LIMIT)) as connection:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            found = Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        for cookie in re.findall(r"^([^=]+)=([^;]+);", found.headers.get("set-cookie", "")):
            self.cookies[cookie[0]] = cookie[1]
        return found

    def get(self, path: str, **query: object) -> Answer:
        return self.ask("GET", path + (f"?{urlencode(query)}" if query else ""), Accept="text/html")

    @contextmanager
    def listen(self, path: str) -> Iterator[Iterator[str]]:
        """The lines of a live page, once it has begun."""
        with closing(HTTPConnection(self.place, timeout=LIMIT)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            assert answer.status == 200
            assert answer.readline() == b": live\n"
            yield (line.decode() for line in iter(answer.readline, b""))

    def csrf(self, path: str, **query: object) -> str:
        """The token of the form on a page."""
        found = re.search(r'name="csrf" value="(\w+)"', self.get(path, **query).text)
        assert found, path
        return found[1]

    def post(self, path: str, fields: dict[str, object], **headers: str) -> Answer:
        body = urlencode(fields)
        return self.ask("POST", path, body, Content_Type="application/x-www-form-urlencoded", **headers)

    def change(self, action: str, name: str, **fields: object) -> Answer:
        """Sends a form as its page has it, with the name typed."""
        csrf = self.csrf("/topics/new")
        return self.post(f"/change/{action}", {"csrf": csrf, "name": name, "confirm": name, **fields})


class _Tables(HTMLParser):
    """The bodies of a page's tables."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self._cell: list[str] | None = None
        self._within = False

    @classmethod
    def of(cls, text: str) -> list[list[list[str]]]:
        parser = cls()
        parser.feed(text)
        return parser.tables

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tbody":
            self._within = True
        elif tag == "tr" and self._within:
            self.tables[-1].append([])
        elif tag == "td":
            self._cell = []

    def handle_endtag(self, tag: str) -> None:
        if tag == "td" and self._cell is not None:
            self.tables[-1][-1].append(" ".join("".join(self._cell).split()))
            self._cell = None
        elif tag == "tbody":
            self._within = False

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)
