"""The sdist and the wheel, as a user installs them: into an environment that has nothing else, on each Python there is.

The packages that Ketch needs come from the package index that pip knows, in the versions of constraints.txt.
"""

from __future__ import annotations

import glob
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
CONSTRAINTS = str(ROOT / "constraints.txt")
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KETCH_", "VIRTUAL_ENV"))},
    "PIP_CONSTRAINT": CONSTRAINTS,
    "PIP_BUILD_CONSTRAINT": CONSTRAINTS,
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "KETCH_REQUIRE_NATIVE": "1",
}


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def test_what_is_pinned_runs_on_the_oldest_python() -> None:
    """Debian 12 has 3.11.2, and some packages ask for a later 3.11."""
    asked = {each.name: each.metadata["Requires-Python"] for each in importlib.metadata.distributions()}
    assert {name: python for name, python in asked.items() if python and "3.11.0" not in SpecifierSet(python)} == {}


def interpreter(version: str) -> str | None:
    """A Python of that version which can make environments and compile extensions: on the path, or of pyenv."""
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    probe = "import ensurepip, os, sys, sysconfig as s, venv; os.stat(s.get_path('include') + '/Python.h')"
    for candidate in (shutil.which(f"python{version}"), *glob.glob(f"{pyenv}/versions/{version}.*/bin/python")):
        if candidate and subprocess.run([candidate, "-c", probe], capture_output=True, cwd="/").returncode == 0:
            return candidate
    return None


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is committed, without what lies about in the work tree."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    directory = tmp_path_factory.mktemp("clone") / "ketch"
    run("git", "clone", "--quiet", "--no-hardlinks", ROOT, directory, cwd=ROOT)
    return directory


@pytest.fixture(scope="module")
def sdist(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "build", "--sdist", "--outdir", directory, clone, cwd=directory)
    (made,) = directory.glob("ketch-*.tar.gz")
    return made


@pytest.mark.long(minutes=1)
def test_the_sdist_has_documents_and_tests(clone: Path, sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = set(run("git", "ls-files", cwd=clone).splitlines())
    assert {name for name in tracked if name.startswith(("docs/", "tests/", "src/", "deploy/"))} <= names
    assert {"README.md", "LICENSE", "CHANGELOG.md", "Makefile", "constraints.txt", "ketch.toml", "PKG-INFO"} <= names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


@pytest.mark.long(minutes=4)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_wheel_needs_nothing_else(version: str, clone: Path, sdist: Path, tmp_path: Path) -> None:
    """The wheel is made of the sdist, so what a wheel needs is in the sdist, too, and the version without git."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"no Python {version} with venv and headers")
    run(python, "-m", "venv", "build", cwd=tmp_path)
    run(tmp_path / "build/bin/python", "-m", "pip", "wheel", "--no-deps", "-w", "dist", sdist, cwd=tmp_path)
    (wheel,) = tmp_path.glob("dist/ketch-*.whl")
    number = re.fullmatch(r"ketch-(.+)\.tar\.gz", sdist.name)
    assert number is not None
    assert wheel.name.startswith(f"ketch-{number[1]}-cp{version.replace('.', '')}-")

    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    packaged = {name.removeprefix("src/") for name in run("git", "ls-files", "src", cwd=clone).splitlines()}
    assert packaged - names == set()
    assert not [name for name in names if name.startswith(("tests/", "bench/", "docs/"))]

    run(python, "-m", "venv", "clean", cwd=tmp_path)
    run(tmp_path / "clean/bin/python", "-m", "pip", "install", wheel, cwd=tmp_path)
    run(tmp_path / "clean/bin/python", "-m", "pip", "check", cwd=tmp_path)
    shutil.copy(Path(__file__).with_name("smoke.py"), tmp_path)
    said = run(tmp_path / "clean/bin/python", "smoke.py", cwd=tmp_path)
    assert f'"version": "{number[1]}"' in said
