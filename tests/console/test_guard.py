"""Who may see the console, and what a browser may do with its pages."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.console import Visitor
from tests.support.ketch import KetchServer

StartKetch = Callable[..., KetchServer]
PATHS = ("/", "/topics", "/groups", "/archive", "/spark", "/clients", "/settings", "/topics/new")


@pytest.mark.parametrize("path", PATHS)
def test_pages_are_there(visitor: Visitor, path: str) -> None:
    answer = visitor.get(path)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", [*PATHS, "/static/ketch.js", "/nowhere", "/topic?name=none"])
def test_only_the_consoles_own_files_run_in_a_page_and_nobody_frames_or_reads_it(visitor: Visitor, path: str) -> None:
    headers = visitor.get(path).headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert not [name for name in headers if name.startswith("access-control")]
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", PATHS)
def test_pages_have_neither_scripts_nor_styles_nor_handlers_of_their_own(visitor: Visitor, path: str) -> None:
    text = visitor.get(path).text
    assert re.findall(r"<script(?![^>]* src=\"/static/)", text) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=|javascript:|(?:src|href|action)=.https?:", text) == []


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:1234", 200),
        ("localhost:1234", 200),
        ("[::1]:1234", 200),
        ("192.168.0.7", 200),
        ("evil.example", 421),
        ("evil.example:1234", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost@evil.example", 421),
        ("evil.example#@127.0.0.1", 421),
        ("[::1", 421),
        ("", 421),
    ],
)
def test_a_name_that_is_not_the_consoles_own_gets_nothing(visitor: Visitor, host: str, status: int) -> None:
    assert visitor.ask("GET", "/topics", Host=host).status == status
    if status != 200:
        assert visitor.ask("GET", "/static/ketch.js", Host=host).status == status
        assert visitor.ask("POST", "/change/delete", "name=x", Host=host).status == status


def test_a_name_that_the_settings_give(start_ketch: StartKetch) -> None:
    visitor = Visitor.of(
        start_ketch("--http-port", "0", "--console", "--console-hosts", "ketch.example, other.example")
    )
    assert visitor.ask("GET", "/topics", Host="Ketch.example:80").status == 200
    assert visitor.ask("GET", "/topics", Host="another.example").status == 421


def test_the_cookie_is_for_this_site_alone_and_no_script_sees_it(visitor: Visitor) -> None:
    cookie = visitor.get("/").headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert "set-cookie" not in visitor.get("/").headers  # it has one now


def test_a_form_without_its_token_or_with_another_ones_changes_nothing(visitor: Visitor, server: KetchServer) -> None:
    fields = {"name": "forged", "confirm": "forged", "partitions": 1}
    visitor.get("/")
    stranger = Visitor.of(server)
    for csrf in ("", "x", stranger.csrf("/topics/new")):
        assert visitor.post("/change/create", {**fields, "csrf": csrf}).status == 403
    assert Visitor.of(server).post("/change/create", {**fields, "csrf": visitor.csrf("/topics/new")}).status == 403
    assert visitor.get("/topic", name="forged").status == 404


@pytest.mark.parametrize(
    "header", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}]
)
def test_a_form_that_another_site_sends_changes_nothing(visitor: Visitor, header: dict[str, str]) -> None:
    csrf = visitor.csrf("/topics/new")
    fields: dict[str, object] = {"csrf": csrf, "name": "forged", "confirm": "forged", "partitions": 1}
    assert visitor.post("/change/create", fields, **header).status == 403
    assert visitor.get("/topic", name="forged").status == 404


def test_a_form_that_is_too_large_is_not_read(visitor: Visitor) -> None:
    assert visitor.ask("POST", "/change/produce", "value=" + "x" * (5 << 20)).status == 413


def test_reading_changes_nothing(visitor: Visitor, server: KetchServer) -> None:
    assert visitor.get("/change/delete", name="x").status == 405


def test_without_write_nothing_is_changed(start_ketch: StartKetch) -> None:
    server = start_ketch("--http-port", "0", "--console")
    visitor = Visitor.of(server)
    page = visitor.get("/")
    assert "read only" in page.text
    assert visitor.get("/topics/new").status == visitor.get("/change", action="delete", name="x").status == 403
    # A form of the login page, which is there always, has a token that is good for any form.
    csrf = visitor.csrf("/login")
    for action in ("create", "delete", "alter", "grow", "produce", "reset", "delete-group"):
        fields: dict[str, object] = {"csrf": csrf, "name": "made", "confirm": "made", "partitions": 1}
        assert visitor.post(f"/change/{action}", fields).status == 403
    assert visitor.get("/topic", name="made").status == 404


class TestToken:
    @pytest.fixture
    def server(self, start_ketch: StartKetch, tmp_path: Path) -> KetchServer:
        (tmp_path / "token").write_text("s3cret-token\n")
        return start_ketch("--http-port", "0", "--console", "--http-token-file", str(tmp_path / "token"))

    def test_who_does_not_know_it_sees_nothing(self, visitor: Visitor) -> None:
        for path in (*PATHS, "/live", "/topic/records?name=x"):
            answer = visitor.get(path)
            assert (answer.status, answer.location.partition("?")[0]) == (303, "/login")
            assert visitor.ask("GET", path).status == 401
        assert visitor.ask("GET", "/topics", Authorization="Bearer wrong").status == 401
        assert visitor.ask("GET", "/topics", Authorization="Bearer ").status == 401
        assert visitor.post("/change/create", {"name": "x", "confirm": "x"}).status == 401

    def test_it_is_asked_for_once(self, visitor: Visitor) -> None:
        csrf = visitor.csrf("/login", next="/topics?q=a b")
        wrong = visitor.post("/login", {"csrf": csrf, "token": "wrong", "next": "/topics"})
        assert (wrong.status, visitor.get("/topics").status) == (401, 303)
        right = visitor.post("/login", {"csrf": csrf, "token": "s3cret-token", "next": "/topics?q=a"})
        assert (right.status, right.location) == (303, "/topics?q=a")
        assert visitor.get("/topics").status == 200

    @pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x"])
    def test_it_leads_to_no_other_site(self, visitor: Visitor, target: str) -> None:
        csrf = visitor.csrf("/login", next=target)
        assert visitor.post("/login", {"csrf": csrf, "token": "s3cret-token", "next": target}).location == "/"

    def test_a_cookie_that_was_made_up_is_none(self, visitor: Visitor) -> None:
        visitor.get("/login")
        ((name, value),) = visitor.cookies.items()
        id, _, user, until, mac = value.split(".")
        for made_up in (f"{id}.1.{user}.{until}.{mac}", f"{id}.1..99999999999.{mac}", f"{id}.1.{mac}", "....", ""):
            visitor.cookies = {name: made_up}
            assert visitor.get("/topics").status == 303, made_up

    def test_a_program_sends_it_with_each_request(self, visitor: Visitor) -> None:
        assert visitor.ask("GET", "/topics", Authorization="Bearer s3cret-token").status == 200
        assert visitor.ask("GET", "/metrics", Authorization="Bearer s3cret-token").status == 200


def test_many_look_at_once_while_the_broker_works(server: KetchServer) -> None:
    """Views share the broker's connection to Redis: none may leave it in a state of its own."""
    with ThreadPoolExecutor(8) as people:
        answers = list(people.map(lambda n: Visitor.of(server).get(PATHS[n % len(PATHS)]).status, range(80)))
    assert answers == [200] * 80
    assert "Traceback" not in server.log


def test_what_the_port_had_before_stays(visitor: Visitor) -> None:
    assert visitor.get("/healthz").text == "ok\n"
    assert "ketch_connections" in visitor.get("/metrics").text


def test_a_broker_without_a_console_has_none(start_ketch: StartKetch) -> None:
    visitor = Visitor.of(start_ketch("--http-port", "0"))
    assert visitor.get("/").text.startswith("ketch ")
    assert visitor.get("/topics").status == visitor.get("/static/ketch.js").status == 404


def test_a_page_that_is_live_ends_with_the_broker(start_ketch: StartKetch) -> None:
    server = start_ketch("--http-port", "0", "--console")
    host, port = Visitor.of(server).place.split(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with client.makefile("rb") as answer:
            assert answer.readline().startswith(b"HTTP/1.1 200")
            assert any(b"event: sample" in line for line in answer)
            assert server.stop() == 0
            answer.read()
    assert "Traceback" not in server.log
