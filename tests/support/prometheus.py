"""A real Prometheus, Debian's package `prometheus`, with the configuration in deploy/: its own port and directory."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.ketch import eventually

DEPLOY = Path(__file__).parents[2] / "deploy"
CONFIG, RULES = DEPLOY / "prometheus/prometheus.yml", DEPLOY / "prometheus/ketch.rules.yml"
MISSING = next(
    (
        f"not installed: {name} (Debian: apt-get install prometheus)"
        for name in ("prometheus", "promtool")
        if not shutil.which(name)
    ),
    "",
)
_LIMIT = 20


class Prometheus:
    """One server, which scrapes some targets once a second.

    Args:
        targets: HOST:PORT each.
    """

    def __init__(self, directory: Path, targets: Sequence[str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        text = CONFIG.read_text()
        for what, ours in (
            ('"ketch:8080"', ", ".join(f'"{target}"' for target in targets)),
            ("scrape_interval: 10s", "scrape_interval: 1s"),
            ("scrape_timeout: 5s", "scrape_timeout: 1s"),
            ("evaluation_interval: 10s", "evaluation_interval: 1s"),
        ):
            assert what in text, f"{CONFIG} has no {what} any more"
            text = text.replace(what, ours)
        (directory / "prometheus.yml").write_text(text)
        shutil.copy(RULES, directory)
        self._log = directory / "prometheus.log"
        options = {"config.file": directory / "prometheus.yml", "storage.tsdb.path": directory / "data"}
        command = ["prometheus", *(f"--{name}={value}" for name, value in options.items())]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([*command, "--web.listen-address=127.0.0.1:0"], stdout=log, stderr=log)
        self._url = "http://" + eventually(self._address, what="Prometheus")
        eventually(self._ready, what="Prometheus to be ready")

    def _address(self) -> str:
        log = self._log.read_text()
        assert self._process.poll() is None, log
        found = re.search(r'msg="Listening on" address=(\S+)', log)
        return found[1] if found else ""

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=_LIMIT) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and values of an instant query's answer."""
        body = urllib.parse.urlencode({"query": expression}).encode()
        return [(each["metric"], float(each["value"][1])) for each in self._get("query", body)["result"]]

    def alerts(self) -> dict[str, str]:
        """States of the alerts that are pending or firing, by name."""
        return {each["labels"]["alertname"]: each["state"] for each in self._get("alerts")["alerts"]}

    def _get(self, path: str, body: bytes | None = None) -> Any:
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/{path}", body, _LIMIT) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(error.read().decode()) from None

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(_LIMIT)
