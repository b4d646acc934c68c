"""The documentation site: its pages, llms.txt, and what its check sees; `make docs` builds it."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from pathlib import Path

import pytest

from docs.build_site import as_markdown, entries, llms_full_txt, llms_txt, settings
from docs.check_site import problems_of
from milabench import Benchmark
from tests.pages import DOCS, INDEX, ROOT, pages

# A template of benchmarks is no page, and the index is what lists the others.
PAGES = {page.path for page in pages() if not page.name.startswith("benchmarks/_")} - {INDEX}


def test_the_index_lists_every_page_once_with_what_it_is_about() -> None:
    listed = [entry.path for entry in entries()]
    assert sorted(listed) == sorted(PAGES)
    assert [entry.name for entry in entries() if not entry.description] == []


def test_llms_txt_has_every_page() -> None:
    text = llms_txt(entries())
    links = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S", text, re.M)
    assert {ROOT / link for link in links} == PAGES
    assert re.match(r"# milabench\n\n> [^\n]+\n\n", text)
    assert all(path.read_text().strip() in llms_full_txt(entries()) for path in PAGES)


def test_the_navigation_has_every_page() -> None:
    nav = tomllib.loads(settings(entries()))["project"]["nav"]
    sections = [each for item in nav for each in item.values()]
    named = [each for each in sections if isinstance(each, str)]
    named += [path for each in sections if isinstance(each, list) for page in each for path in page.values()]
    assert sorted(ROOT / name for name in named) == sorted({*PAGES, INDEX})


def test_what_only_the_tests_and_a_forge_understand_is_taken_out() -> None:
    page = "```sh run exit=0,1\nls | a\\|b\n```\n| `a\\|b` | `c` d\\|e |\n"
    assert as_markdown(page) == "```sh\nls | a\\|b\n```\n| `a|b` | `c` d\\|e |\n"


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        ("<a href='other.html#there'>x</a><a href='#here' id='here'>x</a>", ""),
        ("<a href='https://docs.astral.sh/uv/'>x</a>", ""),
        ("<a href='gone.html'>x</a>", "leads nowhere: gone.html"),
        ("<a href='other.html#gone'>x</a>", "has no such anchor: other.html#gone"),
        ("<a href='https://'>x</a>", "is no address: https://"),
        ("<script src='https://cdn.example/x.js'></script>", "is loaded from elsewhere: https://cdn.example/x.js"),
        ("<p>These:\n- one\n- two</p>", "a list is shown as text"),
    ],
)
def test_what_is_wrong_with_a_page_is_seen(html: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(html)
    (tmp_path / "other.html").write_text("<h1 id='there'>x</h1>")
    found = problems_of(tmp_path)
    assert (len(found), problem in "".join(found)) == (bool(problem), True)


def test_the_page_on_adding_a_benchmark_explains_every_field_and_its_default() -> None:
    page = (DOCS / "how-to" / "add-a-benchmark.md").read_text()
    table = page.partition("## Every field of `Benchmark`")[2]
    explained = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", table, re.M))
    plain = Benchmark(script="main.py")
    assert sorted(explained) == sorted(field.name for field in dataclasses.fields(plain))
    for name in set(explained) - {"script"}:
        default = getattr(plain, name)
        text = "none" if default is None else f"`{json.dumps(default)}`" if isinstance(default, str) else f"`{default}`"
        assert explained[name].partition(":")[0] == text, name
