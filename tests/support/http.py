"""What a broker with `--http-port` answers over HTTP."""

from __future__ import annotations

import re
import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from tests.support.ketch import KetchServer

LIMIT = 20  # s


def url(server: KetchServer) -> str:
    """The URL that the ready line names."""
    found = re.findall(r", http (127\.0\.0\.1:\d+), kernel ", server.log)
    assert found, server.log
    return f"http://{found[-1]}"


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=LIMIT) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def metrics(server: KetchServer) -> dict[tuple[str, str], float]:
    """Values by sample name and the value of its one label ("" without)."""
    code, text = get(f"{url(server)}/metrics")
    assert code == 200
    return {
        (sample.name, "".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
