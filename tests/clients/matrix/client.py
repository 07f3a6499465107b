"""A client of the matrix: its folder, how it is built and run, and what it says.

The folder holds `client.toml`, a program and, where the client comes from a registry, its manifest with exact
versions. What is built goes to the cache (tests/support/cache.py), never into the repository.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tests.clients.matrix.scenario import FEATURES, LAYOUTS
from tests.support.cache import kept, missing, run

HERE = Path(__file__).parent
RESULTS = HERE / "results"
SECONDS = 300  # for one run of a client, on a busy machine

State = Literal["works", "fails", "none"]


@dataclass(frozen=True)
class Outcome:
    """What became of a feature: it works, it fails, or the client has none; and why."""

    state: State
    why: str = ""


@dataclass(frozen=True)
class Run:
    """What a client said in one run."""

    version: str
    outcomes: Mapping[str, Outcome]


@dataclass(frozen=True)
class Client:
    """A folder with a client.toml.

    Attributes:
        variable: of the environment, with the path of the client's own program, where no package registry has that.
        features: name -> what it is; those of the scenario, or of an application its own.
        remark: what the page says of the client beside its results.
        minutes: how long both layouts take, for the mark `long`; 0 is quick.
        creates: whether the client can create topics with configs; if not, they are there before it starts.
        timestamps: whether the client can choose a record's timestamp.
        notes: feature -> why it fails, in better words than the client's own.
    """

    name: str
    home: Path
    title: str
    language: str
    needs: Sequence[str]
    build: Sequence[Sequence[str]]
    command: Sequence[str]
    features: Mapping[str, str]
    variable: str = ""
    base: str = ""
    remark: str = ""
    minutes: float = 0
    creates: bool = True
    timestamps: bool = True
    layouts: Sequence[str] = LAYOUTS
    notes: Mapping[str, str] = field(default_factory=dict)

    @property
    def application(self) -> bool:
        """Whether it has features of its own rather than the scenario's."""
        return self.features is not FEATURES

    def missing(self) -> str | None:
        """Which programs it needs that are not there, for a test's skip reason."""
        if self.variable and not shutil.which(os.environ.get(self.variable, "")):
            return f"{self.variable} names no program: {self.title} is in no package registry"
        return missing(*self.needs, why=f"{self.title} cannot be built without")

    def built(self) -> Path:
        """Where its program is.

        Raises:
            RuntimeError: it could not be built; with the end of what the builder said.
        """
        if not self.build:
            return self.home
        files = dict(self._files())

        def build(home: Path) -> None:
            for name, path in files.items():
                (home / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, home / name)
            for command in self.build:
                run(home, *self._filled(command, home))

        contents = [part for name, path in files.items() for part in (str(name).encode(), path.read_bytes())]
        contents.append(repr(self.build).encode())
        return kept(f"client-{self.name}", build, *contents)

    def _files(self) -> Iterator[tuple[Path, Path]]:
        """Names in the built folder and the files they are copied from; its own come last and win."""
        for folder in [*([HERE / self.base] if self.base else []), self.home]:
            found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "client.toml")
            yield from ((path.relative_to(folder), path) for path in found)

    def run(self, bootstrap: str, topic: str, layout: str) -> Run:
        """Runs it to its end.

        Raises:
            RuntimeError: it could not be built.
        """
        home = self.built()
        command = [*self.command_in(home), bootstrap, topic, layout]
        try:
            done = subprocess.run(command, cwd=home, capture_output=True, timeout=SECONDS, check=False)
            out, errors, end = done.stdout, done.stderr, f"ended with {done.returncode}"
        except subprocess.TimeoutExpired as e:
            out, errors, end = e.stdout or b"", e.stderr or b"", f"did not end in {SECONDS} s"
        said = [json.loads(line) for line in out.decode(errors="replace").splitlines() if line.startswith("{")]
        silent = Outcome("fails", f"the client said nothing of it and {end}: {_last_line(errors)}")
        version = next((str(item["version"]) for item in said if "version" in item), "?")
        told = {item["feature"]: _outcome(item) for item in said if "feature" in item}
        outcomes = {feature: told.get(feature, silent) for feature in self.features}
        return Run(version, {f: replace(o, why=_alike(o.why, bootstrap, topic)) for f, o in outcomes.items()})

    def command_in(self, home: Path) -> list[str]:
        """What starts the program that was built there."""
        return self._filled(self.command, home)

    def _filled(self, command: Sequence[str], home: Path) -> list[str]:
        places = {"python": sys.executable, "home": str(home), "source": str(self.home)}
        return [word.format_map(places) for word in command]


def _outcome(item: Mapping[str, Any]) -> Outcome:
    if "none" in item:
        return Outcome("none", str(item["none"]))
    return Outcome("works") if item["ok"] else Outcome("fails", " ".join(str(item.get("why")).split())[:300])


def _last_line(errors: bytes) -> str:
    return (errors.decode(errors="replace").split("\n") or [""])[-2:][0].strip()[:300]


def _alike(why: str, bootstrap: str, topic: str) -> str:
    """Without what is different in each run."""
    return why.replace(bootstrap, "HOST:PORT").replace(topic, "TOPIC")


def clients() -> Iterator[Client]:
    """All there are, by name."""
    for manifest in sorted(HERE.glob("*/client.toml")):
        yield load(manifest.parent)


def load(home: Path) -> Client:
    """The client of a folder."""
    given = tomllib.loads((home / "client.toml").read_text())
    given["command"] = given.pop("run")
    given.setdefault("build", [])
    given.setdefault("needs", [])
    return Client(**{"name": home.name, "home": home, "features": FEATURES, "title": home.name, **given})


@dataclass(frozen=True)
class Result:
    """What is kept of a client's runs: by layout, what became of each feature."""

    client: str
    version: str
    layouts: Mapping[str, Mapping[str, Outcome]]

    def save(self) -> None:
        """Writes it into `results`."""
        layouts = {
            layout: {feature: {k: v for k, v in asdict(outcome).items() if v} for feature, outcome in outcomes.items()}
            for layout, outcomes in self.layouts.items()
        }
        text = json.dumps({"client": self.client, "version": self.version, "layouts": layouts}, indent=1)
        (RESULTS / f"{self.client}.json").write_text(text + "\n")


def result(client: str) -> Result | None:
    """What is kept of a client; None if it never ran."""
    path = RESULTS / f"{client}.json"
    if not path.exists():
        return None
    given = json.loads(path.read_text())
    layouts = {
        layout: {feature: Outcome(**outcome) for feature, outcome in outcomes.items()}
        for layout, outcomes in given["layouts"].items()
    }
    return Result(given["client"], given["version"], layouts)


def corrected(run: Run, wrong: Mapping[str, str]) -> Run:
    """A run in which features that the client believed to work do not, for these reasons."""
    outcomes = {f: Outcome("fails", wrong[f]) if f in wrong else o for f, o in run.outcomes.items()}
    return replace(run, outcomes=outcomes)
