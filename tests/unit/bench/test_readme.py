"""What a benchmark stands for is the first sentence of its README."""

from __future__ import annotations

from pathlib import Path

import pytest

from milabench.bench.readme import first_sentence
from tests.commands import ROOT


def sentence(folder: Path, text: str) -> str:
    (folder / "README.md").write_bytes(text.encode("utf-8", "surrogateescape"))
    return first_sentence(folder)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("# a\n\nLearns digits, by 1.2.0 of it. The rest.\n", "Learns digits, by 1.2.0 of it"),
        ("# a\n\nOver two\nlines. More.\n", "Over two lines"),
        ("# a\n\nBy `main.py` of **it** ([page](../x.md)).\n", "By main.py of it (page)"),
        ("[![badge](x)](y)\n\n# a\n## b\n\nStands here! Or?", "Stands here!"),
        ("# a\n\nNo full stop\n\n- a list", "No full stop"),
        ("# a\n\n<!-- One sentence\nhere. -->\n\n- program: x\n", ""),
        ("# a\n\n<!-- open. Learns digits.\n", ""),
        ("# a\n\n- a list. Of things.\n", ""),
        ("# a\n\n| a | b |\n", ""),
        ("# a\n\n```sh\nmilabench run.\n```\n", ""),
        ("# a\n", ""),
        ("", ""),
    ],
)
def test_it_is_the_first_prose_below_the_heading(tmp_path: Path, text: str, shown: str) -> None:
    assert sentence(tmp_path, text) == shown


def test_what_a_terminal_would_obey_is_a_sign(tmp_path: Path) -> None:
    assert "\x1b" not in sentence(tmp_path, "Red \x1b[31m text\udcff.\n")


def test_a_page_without_an_end_is_cut(tmp_path: Path) -> None:
    shown = sentence(tmp_path, "word " * 100_000)
    assert 200 < len(shown) <= 240 and shown.endswith("…")


def test_no_readme_and_one_that_is_a_folder_say_nothing(tmp_path: Path) -> None:
    assert first_sentence(tmp_path) == ""
    (tmp_path / "README.md").mkdir()
    assert first_sentence(tmp_path) == ""


SHIPPED = sorted(path.parent for path in (ROOT / "benchmarks").glob("[a-z]*/README.md"))


@pytest.mark.parametrize("folder", SHIPPED, ids=[folder.name for folder in SHIPPED])
def test_a_shipped_benchmark_says_what_it_is_what_it_stresses_and_in_which_unit(folder: Path) -> None:
    what, colon, rest = first_sentence(folder).partition(": ")
    assert colon and len(what) <= 32, "a report of a terminal has room for so much"
    assert ("stresses" in rest or "shows" in rest) and ("/s" in rest or "seconds" in rest)


@pytest.mark.parametrize("template", sorted((ROOT / "benchmarks").glob("_template*")), ids=lambda folder: folder.name)
def test_the_readme_of_a_template_says_nothing_until_its_author_does(template: Path) -> None:
    assert (template / "README.md").is_file()
    assert first_sentence(template) == ""
