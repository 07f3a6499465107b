"""Which names the package's source files define, so that a text that names them can be checked.

A name is what a reader would search for in a file: `Class`, `Class.method`, `function`, a constant, an attribute. This
module reads source files as text and imports none of them, so the kernel and the extras need not be there.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ketch"
_CYTHON = re.compile(r"^(?:cp?def|def|cdef|ctypedef struct|class)\b[^(\n]*?(\w+)\s*[(:]", re.MULTILINE)


@cache
def defined(path: Path) -> frozenset[str]:
    """The names that one source file defines."""
    text = path.read_text()
    if path.suffix in {".pyx", ".pxi"}:
        return frozenset(_CYTHON.findall(text))
    if path.suffix != ".py":
        return frozenset()
    tree = ast.parse(text)
    return frozenset(_of(tree.body) | (_imported(tree) if path.name == "__init__.py" else set()))


@cache
def everywhere() -> frozenset[str]:
    """The names that any file of the package defines."""
    return frozenset().union(*(defined(path) for path in SOURCE.rglob("*.py")))


@cache
def modules() -> frozenset[str]:
    """Modules and packages as comments name them: `log.watcher`, `store.lua`."""
    paths = [*SOURCE.rglob("*.py"), *(path for path in SOURCE.rglob("*") if path.is_dir())]
    return frozenset(".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in paths)


def _of(body: list[ast.stmt]) -> set[str]:
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.ClassDef):
            names |= {node.name} | {f"{node.name}.{name}" for name in _of(node.body) | _attributes(node)}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            names |= _assigned(node)
        elif isinstance(node, ast.If | ast.Try):  # a choice between two ways to define something
            names |= _of(node.body) | _of(node.orelse)
    return names


def _imported(tree: ast.Module) -> set[str]:
    """What a package offers of its modules."""
    return {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}


def _attributes(node: ast.ClassDef) -> set[str]:
    """What its methods assign to `self`."""
    found = (each for each in ast.walk(node) if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store))
    return {each.attr for each in found if isinstance(each.value, ast.Name) and each.value.id == "self"}


def _assigned(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
