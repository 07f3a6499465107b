"""ARCHITECTURE.md and CONTRIBUTING.md name files and code that exist; so do comments and docstrings of the source.

In ARCHITECTURE.md a path in code marks is relative to src/ketch, or to the root of the repository. Names in code marks
that follow a path, joined by nothing but spaces, commas or "and", are defined in that file. Elsewhere on the page
`Class`, `Class.method` and `_name` are defined somewhere in the package. Whatever else stands in code marks is known,
too: no name goes unchecked because it is written in another way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.names import ROOT, SOURCE, defined, everywhere, modules

PAGE = (ROOT / "ARCHITECTURE.md").read_text()
MARK = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w./*-]+\.(?:py|pyx|pxi|lua|c|h|md|toml|txt)|[\w./-]+/")
NAME = re.compile(r"\w+(?:\.\w+)?")
CLASS = re.compile(r"_?[A-Z][a-zA-Z]*[a-z][a-zA-Z]*(?:\.\w+)?")  # not XADD, EVAL, ...
CHAINED = re.compile(r"\s+|,\s+(?:and\s+)?|\s+and\s+")
KEY = re.compile(r"\{ks\}:([a-z-]+)")
PACKAGES = "|".join(path.name for path in sorted(SOURCE.iterdir()) if (path / "__init__.py").exists())
SOURCES = [path for path in SOURCE.rglob("*") if path.suffix in {".py", ".pyx", ".pxi", ".lua"}]
FIELDS = ("coordinator.epoch",)  # of an entry, whose name looks like a module's
MODULE = re.compile(rf"`:?(?:ketch\.)?((?:{PACKAGES})\.[a-z_]\w*(?:\.[A-Z]\w*\.\w+|\.\w+)?)`")
NO_NAMES = {"(ms << N) + seq", "ms-seq", "throttle_time"}  # a formula, how Redis writes an id, a field of Kafka's


def paths(text: str) -> list[Path]:
    """The files that a path on the page stands for."""
    return [path for root in (SOURCE, ROOT) for path in root.glob(text.rstrip("/"))]


@pytest.mark.parametrize(("name", "least"), [("ARCHITECTURE.md", 50), ("CONTRIBUTING.md", 10)])
def test_paths_exist(name: str, least: int) -> None:
    named = {mark for mark in MARK.findall((ROOT / name).read_text()) if FILE.fullmatch(mark)}
    assert [path for path in sorted(named) if not paths(path)] == []
    assert len(named) > least


def named_in_files() -> Iterator[tuple[str, str]]:
    """Each (path, name) of which the page says that the file defines the name."""
    file, end = "", 0
    for match in MARK.finditer(PAGE):
        mark = match[1]
        if FILE.fullmatch(mark):
            file, end = mark, match.end()
        elif file and NAME.fullmatch(mark) and CHAINED.fullmatch(PAGE[end : match.start()]):
            yield file, mark
            end = match.end()
        else:
            file = ""


def test_files_define_the_names_that_follow_them() -> None:
    pairs = list(named_in_files())
    assert [(file, name) for file, name in pairs if not any(name in defined(path) for path in paths(file))] == []
    beside = set(re.findall(r"`([\w/]+\.py)`\s`(\w+)`", PAGE))
    assert beside
    assert beside <= set(pairs)


def test_all_that_stands_in_code_marks_is_known() -> None:
    text = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    marks = MARK.findall(text)
    assert text.count("`") == 2 * len(marks)
    assert {mark for mark in marks if not is_known(mark)} - NO_NAMES == set()


def is_known(mark: str) -> bool:
    """Whether the source has what the mark names: a path, a module, a definition, a key, a setting, a command."""
    word, _, target = mark.partition(" ")
    if FILE.fullmatch(mark):
        return bool(paths(mark))
    if key := KEY.match(mark):
        return f"Keyspace.{key[1].replace('-', '_')}" in everywhere()
    if word.startswith("--"):
        return f"Settings.{word.strip('-').replace('-', '_')}" in everywhere()
    if word == "make":
        return re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE) is not None
    if mark.startswith("tool."):
        return f"[{mark}]" in (ROOT / "pyproject.toml").read_text()
    return mark == "ketch" or mark in everywhere() or mark in modules()


def test_names_without_a_path_exist() -> None:
    named = {mark for mark in MARK.findall(PAGE) if CLASS.fullmatch(mark) or re.fullmatch(r"_\w+", mark)}
    assert sorted(named - everywhere()) == []


def test_files_named_without_their_folder_exist() -> None:
    assert bare_names(PAGE) - {path.name for path in SOURCES} == set()


def bare_names(text: str) -> set[str]:
    """`guard.lua` and the like."""
    return set(re.findall(r"(?<![\w./])\w+\.(?:py|lua|pyx|pxi)\b(?!\w)", text))


def test_the_glossary_has_each_word_once() -> None:
    words = re.findall(r"^\| ([^|`]+?) \| ", PAGE.partition("## Glossary")[2], re.MULTILINE)
    words = [word for cell in words for word in cell.split(", ") if word != "word"]
    assert sorted(words) == sorted(set(words))
    assert len(words) > 50


# -- comments and docstrings of the source


def test_comments_name_files_that_exist() -> None:
    known = {path.name for path in SOURCES} | modules()  # `store.lua` is a package
    stale = [(str(path.relative_to(SOURCE)), name) for path in SOURCES for name in bare_names(path.read_text()) - known]
    assert stale == []


def test_comments_name_modules_that_exist() -> None:
    stale = [
        (str(path.relative_to(SOURCE)), name)
        for path in SOURCES
        for name in MODULE.findall(path.read_text())
        if name not in {*modules(), *FIELDS} and not _is_in_a_module(name.split("."))
    ]
    assert stale == []


def _is_in_a_module(parts: list[str]) -> bool:
    """Whether this is a module, and the name of something that it defines."""
    for n in range(1, len(parts)):
        module = SOURCE.joinpath(*parts[:n])
        files = [module.with_suffix(".py"), module / "__init__.py"]
        if any(path.exists() and ".".join(parts[n:]) in defined(path) for path in files):
            return True
    return False


def test_comments_name_attributes_that_exist() -> None:
    classes = {name for name in everywhere() if "." not in name}
    stale = []
    for path in SOURCES:
        for mark in MARK.findall(path.read_text()):
            known = CLASS.fullmatch(mark) and "." in mark and mark.partition(".")[0] in classes
            if known and mark not in everywhere():
                stale.append((str(path.relative_to(SOURCE)), mark))
    assert stale == []
