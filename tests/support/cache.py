"""What tests and benchmarks fetch or build is made once, and kept in a cache outside the repository.

That is `KETCH_TEST_CACHE`, by default `~/.cache/ketch-tests`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

_ARCHIVE = "classes.jsa"


def missing(*tools: str, why: str = "") -> str | None:
    """Which programs can't be had here, for a test's skip reason; None where all can."""
    absent = [tool for tool in tools if shutil.which(tool) is None]
    return f"{' and '.join(absent)} missing{why and ': '}{why}" if absent else None


def kept(name: str, make: Callable[[Path], None], *contents: bytes) -> Path:
    """A directory of the cache, filled by `make` where that has not been done yet, by one process at a time.

    Args:
        contents: what it is made of; a change of that makes another directory.
    """
    home = _home(name, *contents)
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / ".complete").exists():
            make(home)
            (home / ".complete").touch()
    return home


def _home(name: str, *contents: bytes) -> Path:
    digest = hashlib.sha256(b"\0".join(contents)).hexdigest()[:12]
    return Path(os.environ.get("KETCH_TEST_CACHE", "~/.cache/ketch-tests")).expanduser() / f"{name}-{digest}"


def run(directory: Path, *command: str, **environment: str) -> None:
    """Runs a program in a directory; its output is shown only where it fails.

    The project's own constraints, which make gives pip, are not for the environments that are made here.

    Raises:
        RuntimeError: with the end of what it said.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("PIP_") or "CONSTRAINT" not in name}
    own |= environment
    done = subprocess.run(command, cwd=directory, env=own, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-4000:]}")


def maven(directory: Path, *arguments: str) -> None:
    """Runs Maven in a directory; raises as `run`."""
    run(directory, "mvn", "--batch-mode", "--quiet", *arguments)


def jars(name: str, dependencies: tuple[str, ...], *options: str) -> Path:
    """A directory of the cache with the jars of `group:artifact:version[:classifier]` and all they need.

    Args:
        options: of Maven's dependency:copy-dependencies.

    Raises:
        RuntimeError: Maven failed.
    """
    pom = _pom(dependencies)

    def fetch(home: Path) -> None:
        (home / "pom.xml").write_text(pom)
        maven(home, "dependency:copy-dependencies", f"-DoutputDirectory={home / 'libs'}", *options)

    return kept(name, fetch, pom.encode(), *map(str.encode, options)) / "libs"


def loaded_classes(name: str, train: Callable[[str], None], *contents: bytes) -> str:
    """The option of a JVM that takes its classes, parsed and checked, from an archive (JEP 350): half of its start.

    A JVM that cannot use the archive, as one of another version or class path, goes without.

    Args:
        train: has a JVM load the classes, with the option it is given, and end in good order.
        contents: what the classes are of; a change of that makes another archive.
    """
    kept(f"{name}-classes", lambda home: train(f"-XX:ArchiveClassesAtExit={home / _ARCHIVE}"), _jdk(), *contents)
    return f"-XX:SharedArchiveFile={archive_of(name, *contents)}"


def archive_of(name: str, *contents: bytes) -> Path:
    """Where `loaded_classes` has the archive, or would have it."""
    return _home(f"{name}-classes", _jdk(), *contents) / _ARCHIVE


def _jdk() -> bytes:
    """What tells one version of Java from another."""
    java = shutil.which("java")
    release = java and Path(java).resolve().parents[1] / "release"
    return release.read_bytes() if release and release.exists() else b""


def _pom(dependencies: tuple[str, ...]) -> str:
    wanted = ""
    for dependency in dependencies:
        group, name, version, *classifier = dependency.split(":")
        parts = f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        wanted += f"<dependency>{parts}{''.join(f'<classifier>{c}</classifier>' for c in classifier)}</dependency>\n"
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>ketch.tests</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>\n"
        f"<dependencies>\n{wanted}</dependencies></project>\n"
    )
