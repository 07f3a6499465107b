"""The documentation names what there is: APIs, settings, topic configs, commands; and its links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

import ketch.metrics  # noqa: F401  # into the registry
from ketch.broker.dispatch import TABLE
from ketch.cli.main import COMMANDS, load
from ketch.configs.settings import Settings
from ketch.configs.topic_table import CONFIGS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *ROOT.glob("*.md"),
    *DOCS.glob("*.md"),
    ROOT / "bench" / "limits.md",
    ROOT / "bench" / "results" / "details.md",
]
WRITTEN = [page for page in PAGES if page.parent in (ROOT, DOCS) and page.name != "BENCHMARKS.md"]  # by hand


def rows(page: str) -> list[list[str]]:
    """The cells of every table row of a page, code marks left out."""
    lines = (DOCS / page).read_text().splitlines()
    return [[cell.strip().strip("`") for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]


def test_apis_and_versions() -> None:
    told = {int(cells[0]): tuple(cells[1:3]) for cells in rows("protocol.md") if len(cells) == 4 and cells[0].isdigit()}
    module = {key: api.handle.__module__.rpartition(".")[2].replace("_", "") for key, api in TABLE.items()}
    assert {key: versions for key, (_, versions) in told.items()} == {
        key: f"{api.oldest}-{api.newest}" for key, api in TABLE.items()
    }
    assert {key: name.lower() for key, (name, _) in told.items()} == module


def test_settings_and_their_defaults() -> None:
    told = {cells[0]: cells[1] for cells in rows("configuration.md") if len(cells) == 3}
    told.pop("setting")
    told.pop("---")
    known = {name: field.default for name, field in Settings.model_fields.items()}
    assert told == {name: "" if value is None else toml(value) for name, value in known.items()}


def toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_topic_configs_and_their_fields() -> None:
    """The table is the source's, which says which configs have no effect."""
    done = subprocess.run([sys.executable, ROOT / "scripts" / "topic_table.py", "--check"], stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    told = {cells[0]: cells[3] for cells in rows("configuration.md") if len(cells) == 4}
    idle = {name for name, said in told.items() if said.startswith("**No effect**")}
    assert idle == {name for name, config in CONFIGS.items() if config.idle}


def test_what_apis_need() -> None:
    """The table is the dispatch table's."""
    done = subprocess.run([sys.executable, ROOT / "scripts" / "access_table.py", "--check"], stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr


def test_rights_of_redis_users() -> None:
    """The blocks are the table's of `ketch.store.rights`."""
    done = subprocess.run([sys.executable, ROOT / "scripts" / "rights_table.py", "--check"], stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_commands(name: str) -> None:
    text = (DOCS / "cli.md").read_text()
    assert f"## ketch {name}\n" in text
    command = load(name)
    if isinstance(command, typer.core.TyperGroup):
        for sub in command.commands:
            assert re.search(rf"ketch {name} {sub}\b|^`{sub}`|\. `{sub}`", text, re.MULTILINE), f"ketch {name} {sub}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text()):
        linked = page.parent / target if target else page
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, f"{target}#{anchor}"


def test_the_site_has_each_page() -> None:
    """As `make docs` asks for, which takes longer."""
    listed = re.findall(r"^ +- (docs/\S+\.md)$", (ROOT / "scripts/site/mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(f"docs/{page.name}" for page in DOCS.glob("*.md"))


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_lines_are_short(page: Path) -> None:
    for number, line in enumerate(page.read_text().splitlines(), 1):
        assert len(line) <= 140, f"{page.name}:{number}"


def test_each_threat_has_a_test_that_is_there() -> None:
    """Those without one are for the operator to guard against, which the row says."""
    table = rows("security.md")
    first, second = table.index(["where", "who could", "what stands against it"]), table.index(["who could", "test"])
    threats = {threat: answer for _, threat, answer in table[first + 2 : second]}
    tests = dict(table[second + 2 :])
    assert len(threats) == second - first - 2 > 20
    assert tests.keys() <= threats.keys()
    for threat, answer in threats.items():
        assert (threat in tests) != answer.startswith("Nothing here"), threat
    for named in tests.values():
        file, _, name = named.partition("::")
        path = ROOT / (file if "/" in file else f"tests/broker/protocol/{file}")
        assert re.search(rf"^def {name}\(", path.read_text(), re.MULTILINE), named


def slug(heading: str) -> str:
    """As GitHub makes them."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_no_page_is_left_out() -> None:
    readme = (ROOT / "README.md").read_text()
    for page in DOCS.glob("*.md"):
        assert f"docs/{page.name}" in readme
