"""Hooks of mkdocs for `make docs`: which files are the site, and the reference of the Python package.

Pages stay where a Git host shows them. They come into the site under the same paths, so their links hold in both; what
they link to that is no page (LICENSE, an example) comes along as a file. The reference has a page for each package of
src/ketch/, made from its docstrings. This changes no page and reads nothing from the network.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ketch"
PAGES = ("*.md", "docs/*.md", "bench/*.md", "bench/results/*.md")
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
# What scripts/site/javascript brought.
PARTS = ROOT / "build" / "site-parts"
MERMAID, WORKER = PARTS / "mermaid.min.js", PARTS / "iframe-worker.js"
CDN = "https://unpkg.com/iframe-worker/shim"  # where the theme would take the latter from


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    assert config.nav is not None
    config.nav.append({"Python package": ["python/index.md", *(f"python/{name}.md" for name in packages())]})
    if MERMAID.exists():
        from pymdownx.superfences import fence_code_format

        fence = {"name": "mermaid", "class": "mermaid", "format": fence_code_format}
        config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in sorted({*pages(), *linked()}):
        files.append(File(str(path), str(ROOT), config.site_dir, use_directory_urls=False))
    files.append(File.generated(config, "python/index.md", content=overview()))
    for name in packages():
        content = f"# ketch.{name}\n\n::: ketch.{name}\n"
        files.append(File.generated(config, f"python/{name}.md", content=content))
    for part in filter(Path.exists, (MERMAID, WORKER)):
        files.append(File.generated(config, f"assets/{part.name}", abs_src_path=str(part)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A Git host shows a folder; the site has none, so its name stands without a link."""

    def without(link: re.Match[str]) -> str:
        return link[1] if (ROOT / page.file.src_uri).parent.joinpath(link[2]).is_dir() else link[0]

    return re.sub(r"\[([^\[\]]+)\]\((?!https?:|mailto:|#)([^)#\s]+)\)", without, markdown)


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    return _without_cdn(output_content, "")


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    return _without_cdn(output, "../" * page.url.count("/"))


def _without_cdn(output: str, up: str) -> str:
    """What the theme would take from a CDN comes from the site. It loads no Mermaid where one is there already."""
    output = re.sub(rf'<script src="{CDN}"[^>]*></script>', _script(WORKER, up), output)
    return output.replace("</head>", f"{_script(MERMAID, up)}</head>", 1) if 'class="mermaid"' in output else output


def _script(part: Path, up: str) -> str:
    return f'<script src="{up}assets/{part.name}"></script>' if part.exists() else ""


def pages() -> Iterator[Path]:
    """Relative to the root."""
    return (path.relative_to(ROOT) for pattern in PAGES for path in ROOT.glob(pattern))


def linked() -> Iterator[Path]:
    """The files that pages link to and that are in the repository."""
    for page in pages():
        for target in LINK.findall((ROOT / page).read_text()):
            path = (ROOT / page.parent / target).resolve()
            if path.is_file() and path.is_relative_to(ROOT):
                yield path.relative_to(ROOT)


def packages() -> list[str]:
    return sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))


def summary(package: str) -> str:
    """The first paragraph of its docstring."""
    text: Any = ast.get_docstring(ast.parse((SOURCE / package / "__init__.py").read_text())) or ""
    return str(text).partition("\n\n")[0]


def overview() -> str:
    rows = "\n".join(f"| [ketch.{name}]({name}.md) | {' '.join(summary(name).split())} |" for name in packages())
    return f"""# The Python package

What the packages offer each other, from their docstrings; [ARCHITECTURE.md](../ARCHITECTURE.md) says how they fit
together. Ketch is used through Kafka's protocol, Redis, Spark and the command `ketch`: those stay compatible. The
modules below may change with any version.

| package | |
|---|---|
{rows}
"""
