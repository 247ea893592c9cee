"""Build the site into `build/site`: tutorial, guides, reference from docstrings, help of every command, decisions.

    python docs/site/build.py

It needs no network. Pages are copied to `build/site-pages` with the generated ones beside them; links to source files,
which are not part of the site, become plain text there. A warning fails the build.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.cmd.build import build_main
from typer.main import get_command
from typer.testing import CliRunner

from endive.cli.app import app

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = ROOT / "build" / "site-pages"
SITE = ROOT / "build" / "site"
GUIDES = ["simulator", "sweeps", "report", "catalog", "server", "server-security", "store", "spark", "engine"]
BACKGROUND = ["architecture", "formats", "testing", "testing-protocols", "glossary", "sources"]
AT_THE_ROOT = ["CHANGELOG", "CONTRIBUTING", "SECURITY", "CODE_OF_CONDUCT"]
MODULES = [
    *("endive", "endive.catalog", "endive.catalog.pyiceberg", "endive.server"),
    *("endive.kv", "endive.objects"),
    *("endive.pipeline", "endive.spark", "endive.report"),
    *("endive.sim.simulation", "endive.sim.transaction", "endive.sim.storage", "endive.sim.catalog"),
    *("endive.testing", "endive.errors", "endive.extras", "endive.logs"),
]
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")


def main() -> int:
    """Write the pages, and let Sphinx build them."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES, ignore=shutil.ignore_patterns("site"))
    for name in AT_THE_ROOT:
        shutil.copy(ROOT / f"{name}.md", PAGES / f"{name.lower()}.md")
    for page in PAGES.rglob("*.md"):
        page.write_text(_relinked(page), encoding="utf-8")
    (PAGES / "cli.md").write_text("\n".join(cli_help()), encoding="utf-8")
    (PAGES / "reference.md").write_text("\n".join(reference()), encoding="utf-8")
    (PAGES / "index.md").write_text("\n".join(index()), encoding="utf-8")
    shutil.rmtree(SITE, ignore_errors=True)
    options = ["-W", "--keep-going", "-q", "-b", "html", "-c", str(ROOT / "docs" / "site")]
    return int(build_main([*options, str(PAGES), str(SITE)]))


def _relinked(page: Path) -> str:
    """Return a page's text with links to pages of the site kept, and links to other files turned into their text."""
    text = page.read_text(encoding="utf-8").replace("](docs/", "](").replace("](../CHANGELOG.md", "](changelog.md")
    text = re.sub(rf"\]\(({'|'.join(AT_THE_ROOT)})\.md", lambda name: f"]({name[1].lower()}.md", text)

    def kept(link: re.Match[str]) -> str:
        target = link[2]
        is_page = not target or ":" in target or (target.endswith(".md") and (page.parent / target).exists())
        return link[0] if is_page else link[1]

    return LINK.sub(kept, text)


def index() -> Iterator[str]:
    """Yield the front page: the first paragraphs of the README, and the contents."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    yield readme.partition("**Get it**")[0].replace("](docs/", "](")
    decisions = sorted(f"decisions/{path.stem}" for path in (PAGES / "decisions").glob("*.md"))
    background = [name for name in BACKGROUND if (PAGES / f"{name}.md").exists()]
    for caption, pages in (
        ("Begin", ["tutorial"]),
        ("Guides", GUIDES),
        ("Reference", ["cli", "reference"]),
        ("Background", [*background, "contributing", "code_of_conduct", "security", "changelog"]),
        ("Decisions", decisions),
    ):
        yield "\n".join(["```{toctree}", f":caption: {caption}", ":maxdepth: 1", "", *pages, "```", ""])


def reference() -> Iterator[str]:
    """Yield the reference: every public module with its docstrings."""
    yield "# Reference\n"
    for module in MODULES:
        yield f"## {module}\n\n```{{eval-rst}}\n.. automodule:: {module}\n   :no-index:\n```\n"


def cli_help() -> Iterator[str]:
    """Yield the help of `endive` and of each of its commands."""
    yield "# Command line\n"
    yield from _help(get_command(app), ())


def _help(command: Any, words: tuple[str, ...]) -> Iterator[str]:  # noqa: ANN401 - Typer's commands
    shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "110", "TERM": "dumb", "NO_COLOR": "1"}).stdout
    yield f"## {' '.join(('endive', *words))}\n\n```text\n{shown.strip()}\n```\n"
    for name, inner in getattr(command, "commands", {}).items():
        yield from _help(inner, (*words, name))


if __name__ == "__main__":
    sys.exit(main())
