"""Build the documentation site, with llms.txt, into build/docs/site, and check it: `python -m docs.build_site`, or `make docs`.

The pages are copied with the folders that they have in the repository, so that every link between them and to other files of
the repository, which are copied too, leads where it leads there. docs/index.md says which pages there are, in which order.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from docs.check_site import problems_of
from tests.pages import DOCS, INDEX, ROOT, Page

BUILD = ROOT / "build" / "docs"
SOURCE, SITE = BUILD / "source", BUILD / "site"
SETTINGS = DOCS / "zensical.toml"
HOME = ROOT / "README.md"
# A row of a table or a line of a list of the index that begins with a link to a page: title, page, description.
ENTRY = re.compile(r"^(?:\| |\d+\. |- )?\[([^\]]+)\]\(([^)#]+\.md)\)(?::| \|) ?([^|\n]*)", re.M)
WORKER, FOREIGN_WORKER = "file_worker.js", "https://unpkg.com/iframe-worker/shim"
DIAGRAM = re.compile(r"^```mermaid\n(?P<text>.*?)^```$", re.M | re.S)
ROW, CODE = re.compile(r"^\|.*$", re.M), re.compile(r"`[^`]+`")
FENCE = re.compile(r"^([ ]*```+\w+)[ ][^\n]*$", re.M)


@dataclass(frozen=True)
class Entry:
    """A page as the index lists it."""

    section: str
    title: str
    path: Path
    description: str

    @property
    def name(self) -> str:
        """Its path in the repository, in `SOURCE` and in the site."""
        return self.path.relative_to(ROOT).as_posix()


def entries() -> list[Entry]:
    """Return the pages of the index, in its order."""
    found = []
    for part in re.split(r"^## ", INDEX.read_text(), flags=re.M)[1:]:
        section, _, text = part.partition("\n")
        for title, link, description in ENTRY.findall(text):
            path = (INDEX.parent / link).resolve()
            found.append(Entry(section.partition(":")[0], title, path, description.strip()))
    return found


def tagline() -> str:
    """Return the first paragraph of the README below its title, on one line."""
    return " ".join(HOME.read_text().split("\n\n")[1].split())


def llms_txt(pages: list[Entry]) -> str:
    """Return the list of pages for language models; the form is that of llmstxt.org."""
    lines = [
        "# milabench",
        "",
        f"> {tagline()}",
        "",
        "Each page is Markdown; llms-full.txt has all of them in one file.",
    ]
    section = ""
    for page in pages:
        if page.section != section:
            section = page.section
            lines += ["", f"## {section}", ""]
        lines.append(f"- [{page.title}]({page.name}): {page.description}")
    return "\n".join(lines) + "\n"


def llms_full_txt(pages: list[Entry]) -> str:
    """Return all pages in one text, each behind a line with its path."""
    return "\n".join(f"<!-- {page.name} -->\n\n{page.path.read_text().strip()}\n" for page in pages)


def copy_sources(pages: list[Entry]) -> None:
    """Copy the pages into `SOURCE`, and what they link to that is no page."""
    for path in (INDEX, *(page.path for page in pages)):
        here = SOURCE / path.relative_to(ROOT)
        here.parent.mkdir(parents=True, exist_ok=True)
        here.write_text(as_markdown(DIAGRAM.sub(partial(_drawn, here), path.read_text())))
        for link in Page(path).links:
            target = (path.parent / link.partition("#")[0]).resolve()
            if target.is_file() and target.suffix != ".md" and target.is_relative_to(ROOT):
                copy = SOURCE / target.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(target, copy)


def as_markdown(text: str) -> str:
    """Return a page without what only the tests and a forge understand: words after a block's language, pipes escaped in code."""
    return ROW.sub(lambda row: CODE.sub(lambda code: code[0].replace("\\|", "|"), row[0]), FENCE.sub(r"\1", text))


def _drawn(page: Path, diagram: re.Match[str]) -> str:
    """Return the Markdown of a diagram as a picture beside the page: no script has to draw it in the reader's browser."""
    import mermaidx

    picture = page.with_name(f"{page.stem}-{diagram.start()}.svg")
    svg = mermaidx.render(diagram["text"]).svg()
    picture.write_text(svg.replace("background-color: transparent", "background-color: white", 1))
    return f"![diagram]({picture.name})"


def use_own_worker(site: Path) -> None:
    """Put our file_worker.js where the pages load one from the network, without which a page opened as a file has no search."""
    shutil.copyfile(DOCS / WORKER, site / "assets" / WORKER)
    for path in site.rglob("*.html"):
        root = os.path.relpath(site, path.parent)
        text = path.read_text()
        path.write_text(text.replace(FOREIGN_WORKER, f"{root}/assets/{WORKER}"))


def settings(pages: list[Entry]) -> str:
    """Return docs/zensical.toml with the navigation."""
    nav: dict[str, list[dict[str, str]]] = {}
    for page in pages:
        if page.path != HOME:
            nav.setdefault(page.section, []).append({page.title.replace("`", ""): page.name})
    items = [{"milabench": HOME.name}, {"Documentation": INDEX.relative_to(ROOT).as_posix()}]
    lines = [_toml(item) for item in (*items, *({name: each} for name, each in nav.items()))]
    return SETTINGS.read_text().replace("nav = []", "nav = [\n  " + ",\n  ".join(lines) + ",\n]")


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(own)}" for key, own in value.items()) + " }"
    return "[" + ", ".join(map(_toml, value)) + "]" if isinstance(value, list) else json.dumps(value)


def main() -> int:
    """Build and check the site; print what is wrong with it."""
    pages = entries()
    shutil.rmtree(BUILD, ignore_errors=True)
    copy_sources(pages)
    (BUILD / SETTINGS.name).write_text(settings(pages))
    builder = [
        sys.executable,
        "-m",
        "zensical",
        "build",
        "--strict",
        "--clean",
        "--config-file",
        str(BUILD / SETTINGS.name),
    ]
    done = subprocess.run(builder, cwd=BUILD, check=False)
    if done.returncode:
        return done.returncode
    for page in pages:
        copy = SITE / page.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page.path, copy)
    use_own_worker(SITE)
    (SITE / "llms.txt").write_text(llms_txt(pages))
    (SITE / "llms-full.txt").write_text(llms_full_txt(pages))
    problems = problems_of(SITE)
    for problem in problems:
        print(problem, file=sys.stderr)
    print(f"{len(pages)} pages, {len(problems)} problems: {(SITE / 'index.html').relative_to(ROOT)}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
