"""What the browser loads: third parties' files are as they were published, colours can be read, and no page needs what
the policy refuses. Without a server.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

import ketch.console

CONSOLE = Path(ketch.console.__file__).parent
STATIC, TEMPLATES = CONSOLE / "static", CONSOLE / "templates"
STYLES = (STATIC / "ketch.css").read_text()
PAIRS = [
    ("--text", "--ground"), ("--text", "--side"), ("--text", "--raised"), ("--text", "--own"), ("--text", "--hover"),
    ("--dim", "--ground"), ("--dim", "--side"), ("--dim", "--raised"), ("--dim", "--own"), ("--dim", "--hover"),
    ("--accent", "--ground"), ("--accent", "--raised"), ("--accent", "--own"), ("--accent", "--hover"),
    ("--on-accent", "--accent"), ("--tag", "--tag-ground"), ("--text", "--tag-ground"),
    ("--ok", "--ok-ground"), ("--warn", "--warn-ground"), ("--fail", "--fail-ground"),
    ("--text", "--warn-ground"), ("--text", "--fail-ground"),
]  # fmt: skip


def test_files_of_third_parties_are_as_they_were_published() -> None:
    vendor = STATIC / "vendor"
    sums = dict(reversed(line.split()) for line in (vendor / "checksums").read_text().splitlines())
    assert sums.keys() == {file.name for file in vendor.iterdir() if file.suffix in (".js", ".css")}
    for name, digest in sums.items():
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest, name
    for package in ("htmx", "htmx-ext-sse", "uPlot"):
        assert (vendor / f"{package}-LICENSE").stat().st_size > 500


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("pair", PAIRS, ids="-on".join)
def test_text_can_be_read_on_its_ground(pair: tuple[str, str], theme: str) -> None:
    """WCAG 2.2 AA asks for 4.5."""
    blocks = re.findall(r"(:root[^{]*)\{([^}]*)\}", STYLES)
    (block,) = [
        body
        for selector, body in blocks
        if (":root[data-theme" in selector) == (theme == "dark") and ":not" not in selector
    ]
    colours = dict(re.findall(r"(--[\w-]+): (#\w{6});", block))
    light, dark = sorted((luminance(colours[name]) for name in pair), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_both_ways_to_the_dark_theme_have_the_same_colours() -> None:
    preferred, chosen = [
        body for selector, body in re.findall(r"(:root[^{]*)\{([^}]*)\}", STYLES) if "data-theme" in selector
    ]
    assert preferred.split() == chosen.split()


def luminance(colour: str) -> float:
    """WCAG's relative luminance."""
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("page", sorted(TEMPLATES.glob("*.html")), ids=lambda page: page.name)
def test_no_template_has_what_the_policy_refuses_or_leaves_a_value_unescaped(page: Path) -> None:
    text = page.read_text()
    assert (
        re.findall(r"<style|\sstyle=|\son\w+=|javascript:|<script(?! src)|\|\s*safe|autoescape|https?://", text) == []
    )
    assert re.findall(r"hx-on|hx-vals|hx-headers=.js:", text) == []


@pytest.mark.parametrize("page", sorted(TEMPLATES.glob("*.html")), ids=lambda page: page.name)
def test_every_field_has_a_label(page: Path) -> None:
    text = page.read_text()
    labelled = set(re.findall(r'<label[^>]* for="(\w+)"', text))
    for field in re.findall(r"<(?:input|select|textarea)\b[^>]*>", text):
        if 'type="hidden"' in field:
            continue
        own = re.search(r' id="(\w+)"', field)
        within = re.search(r"<label[^>]*>[^<]*" + re.escape(field), text)
        assert within or (own and own[1] in labelled), field
