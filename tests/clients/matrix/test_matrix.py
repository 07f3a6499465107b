"""Every client still does what the kept results say it does, and the page in docs/ is made of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.clients.matrix import checks, page
from tests.clients.matrix.client import RESULTS, Client, Outcome, clients, load, result
from tests.clients.matrix.scenario import FEATURES
from tests.support.ketch import KetchServer

CLIENTS = {client.name: client for client in clients()}


def _parameters() -> list[object]:
    """A case for each client and layout; long where the client is not quick, skipped where it cannot be built."""
    return [
        pytest.param(client, layout, id=f"{client.name}-{layout}", marks=_marks(client))
        for client in CLIENTS.values()
        for layout in client.layouts
    ]


def _marks(client: Client) -> list[pytest.MarkDecorator]:
    reason = client.missing()
    marks = [pytest.mark.skip(reason=reason)] if reason else []
    return [*marks, pytest.mark.long(minutes=client.minutes / 2)] if client.minutes else marks


@pytest.mark.parametrize(("client", "layout"), _parameters())
def test_what_worked_works(client: Client, layout: str, broker: KetchServer) -> None:
    """That something works now which did not is told by `make compatibility`, and no failure here."""
    kept = result(client.name)
    assert kept is not None, f"no results of {client.name}: run python -m tests.clients.matrix {client.name}"
    run = checks.run(client, broker.bootstrap, layout)
    lost = {
        feature: outcome.why
        for feature, outcome in run.outcomes.items()
        if outcome.state != "works" and kept.layouts[layout][feature].state == "works"
    }
    assert not lost, f"{client.title} {run.version}"


LIAR = """
import json
print(json.dumps({"version": "1"}))
for feature in {features}:
    print(json.dumps({"feature": feature, "ok": True}))
"""
LEAVES_NOTHING = {"consume in a group", "seek by timestamp", "list groups", "delete topic"}


def test_a_client_that_says_it_did_what_it_did_not_is_not_believed(broker: KetchServer, tmp_path: Path) -> None:
    home = tmp_path / "liar"
    home.mkdir()
    (home / "client.toml").write_text('language = "Python"\nrun = ["{python}", "main.py"]\n')
    (home / "main.py").write_text(LIAR.replace("{features}", repr(list(FEATURES))))
    run = checks.run(load(home), broker.bootstrap, "record")
    believed = {feature for feature, outcome in run.outcomes.items() if outcome.state == "works"}
    assert believed == LEAVES_NOTHING


def test_a_client_that_ends_early_works_as_far_as_it_came(tmp_path: Path) -> None:
    home = tmp_path / "early"
    home.mkdir()
    (home / "client.toml").write_text('language = "Python"\nrun = ["{python}", "main.py"]\n')
    says = ['{"version": 7}', '{"feature": "create topic", "ok": true}', '{"feature": "lag", "none": "no lag"}']
    (home / "main.py").write_text("".join(f"print({line!r})\n" for line in says) + "raise ValueError('no more')\n")
    run = load(home).run("127.0.0.1:1", "no-topic", "record")
    assert run.version == "7"
    assert run.outcomes["create topic"] == Outcome("works")
    assert run.outcomes["lag"] == Outcome("none", "no lag")
    assert run.outcomes["commit"].why == "the client said nothing of it and ended with 1: ValueError: no more"


def test_a_client_that_no_registry_has_is_skipped_until_its_program_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "client.toml").write_text('title = "Rare"\nlanguage = "C"\nvariable = "RARE"\nrun = ["./main"]\n')
    monkeypatch.delenv("RARE", raising=False)
    assert load(tmp_path).missing() == "RARE names no program: Rare is in no package registry"
    monkeypatch.setenv("RARE", sys.executable)
    assert load(tmp_path).missing() is None


def test_the_page_is_what_the_results_say() -> None:
    assert page.PAGE.read_text() == page.render(), "write it anew: python -m tests.clients.matrix --page"


def test_the_results_are_of_the_clients_there_are() -> None:
    assert {path.stem for path in RESULTS.glob("*.json")} == set(CLIENTS)
    for client in CLIENTS.values():
        kept = result(client.name)
        assert kept is not None
        assert set(kept.layouts) == set(client.layouts)
        assert all(list(outcomes) == list(client.features) for outcomes in kept.layouts.values())
