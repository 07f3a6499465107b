"""Every command and all Python that README.md and docs/ show is run from top to bottom, and gives what the page shows.

`pytest tests/docs -rP` prints how many blocks of each page were run, and why the others were not. How a page says so
is in `tests/docs/pages.py`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.docs.output import difference, real
from tests.docs.pages import COMMAND, Block, Step, blocks
from tests.docs.session import ROOT, Session, serves

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def runnable(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.kind != "text"]


def names(page: Path) -> str:
    return page.name


needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, ("kcat", "redis-cli", "redis-server"))), reason="needs kcat, redis-cli and redis-server"
)


@needs_tools
@pytest.mark.parametrize("page", [page for page in PAGES if any(not b.marker for b in runnable(page))], ids=names)
def test_page(page: Path, tmp_path: Path) -> None:
    """The blocks that take seconds."""
    run(page, tmp_path, [block for block in runnable(page) if not block.marker])


@needs_tools
@pytest.mark.long(minutes=10)
@pytest.mark.parametrize("page", [page for page in PAGES if any(b.marker == "long" for b in runnable(page))], ids=names)
def test_whole_page(page: Path, tmp_path: Path) -> None:
    """All blocks, those that start Spark included."""
    if shutil.which("java") is None:
        pytest.skip("java is missing: Spark runs on it")
    run(page, tmp_path, [block for block in runnable(page) if block.marker != "not run"], timeout=900)


def run(page: Path, directory: Path, chosen: list[Block], timeout: float = 90) -> None:
    first = next((step for block in chosen if block.kind == "console" for step in block.steps()), Step(""))
    quick = page.name != "README.md"  # there all is as it is for a user
    session = Session(directory, broker=not serves(first), quick=quick, timeout=timeout)
    try:
        for block in chosen:
            session.run(block)
    finally:
        session.close()
    left = [block for block in runnable(page) if block not in chosen]
    print(f"{page.name}: {len(chosen)} blocks run, {len(left)} not run")
    for block in left:
        print(f"  {block.where}: {block.marker}: {block.reason}")


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_commands_have_a_prompt(page: Path) -> None:
    """A command without `$ ` in front would not be run."""
    for block in blocks(page):
        if block.kind == "text" and block.marker != "not run":
            for line in block.text.splitlines():
                assert not COMMAND.match(line), f"{block.where}: a command without a prompt: {line}"


def test_what_differs_between_runs_is_learned() -> None:
    learned: dict[str, str] = {}
    shown = ['{"offset":1838349758088192,"timestamp":1795263435549}', "3 records in 0.1 s", "..."]
    got = '{"offset":1838349758000000,"timestamp":1795263430000}\n3 records in 2.0 s\nmore\n'
    assert difference(shown, got, learned) == ""
    assert real("ketch offset decode 1838349758088192", learned) == "ketch offset decode 1838349758000000"


@pytest.mark.parametrize(
    ("shown", "got"),
    [
        (["Topic orders was created."], "Topic order was created.\n"),
        (["3 records in 0.1 s"], "2 records in 0.1 s\n"),
        (["a", "c"], "a\nb\nc\n"),
        (["a"], "a\nb\n"),
        (["a", "..."], "b\na\n"),
    ],
)
def test_what_differs_from_the_page_is_found(shown: list[str], got: str) -> None:
    assert "the page shows" in difference(shown, got, {})


def test_a_computed_number_must_be_the_one_shown() -> None:
    assert difference(["1740800000000005"], "1740800000000006\n", {}, exact=True)
