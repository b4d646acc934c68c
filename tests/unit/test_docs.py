"""The pages say what the program does: links, paths, commands, options and symbols in them exist."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import click
import pytest
import yaml

from milabench.cli.verbs import with_verb_joined
from tests.pages import DOCS, INDEX, ROOT, Page, pages, words_of

PAGES = pages()
PACKAGES = {"milabench": ROOT / "orchestrator" / "milabench", "benchmate": ROOT / "benchmate" / "src" / "benchmate"}
# Where a path in backticks may begin.
BASES = (ROOT, *PACKAGES.values(), ROOT / "benchmate")
TOP = {path.name for base in BASES for path in base.iterdir() if path.is_dir() and not path.name.startswith((".", "_"))}
PATH = re.compile(r"(?:[\w.*{},-]+/)+[\w.*{},-]*")
SYMBOL = re.compile(r"((?:milabench|benchmate)(?:\.[A-Za-z_]\w*)+)(?:\(.*\))?")
# What the tutorials create, and what is a file on a node or in a run and only looks like a path of the repository.
ELSEWHERE = re.compile(
    r"benchmarks/(mine\b|dcgan\b|nnx_simple_training)|config/scaling/|build/|cache/|data/|images/|site/|results/|docs/measuring"
)
OPTION = re.compile(r"--[a-z][a-z0-9-]*(=.*)?")  # those of other programs often have an underscore
# Of programs that `milabench driver` starts, an example of the suite language, and options that are made from a list of names.
OF_OTHER_PROGRAMS = {"--kv-store", "--num-epochs", "--key", "--no-key", "--ncu", "--nsys"}
# Commands whose arguments are those of another program.
FORWARDING = {"try", "ops", "dev", "bench"}
COMMAND_LANGUAGES = {"sh", "bash", "shell", "console", "zsh"}

# Pages about options of our own; a benchmark's README is about those of its program.
OURS = [page for page in PAGES if not page.name.startswith("benchmarks/")]
by_page = pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])


@pytest.mark.parametrize("name", ["benchfile.py", "voirfile.py"])
def test_the_walk_through_shows_the_real_files(name: str) -> None:
    page = (DOCS / "how-to" / "add-a-benchmark.md").read_text()
    assert (ROOT / "benchmarks" / "flax" / name).read_text().strip() in page


def test_every_page_is_reachable_from_the_index() -> None:
    reached, pending = set(), [INDEX]
    while pending:
        path = pending.pop()
        if path in reached:
            continue
        reached.add(path)
        targets = ((path.parent / link.partition("#")[0]).resolve() for link in Page(path).links)
        pending += [target for target in targets if target.suffix == ".md" and target.exists()]
    assert {path.relative_to(ROOT).as_posix() for path in set(DOCS.rglob("*.md")) - reached} == set()


def test_the_readme_leads_to_the_index() -> None:
    assert "docs/index.md" in Page(ROOT / "README.md").links


@by_page
def test_links_and_anchors_exist(page: Page) -> None:
    broken = []
    for link in page.links:
        file, _, anchor = link.partition("#")
        target = (page.path.parent / file).resolve() if file else page.path
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in Page(target).anchors):
            broken.append(link)
    assert broken == []


@by_page
def test_paths_in_backticks_and_commands_exist(page: Page) -> None:
    missing = []
    for path in paths_in(page):
        if ELSEWHERE.match(path):
            continue
        if not any(exists(base, path) for base in (*BASES, page.path.parent)):
            missing.append(path)
    assert missing == []


def paths_in(page: Page) -> Iterator[str]:
    for text in (*page.spans, *page.command_lines):
        for word in text.split():
            if PATH.fullmatch(word) and word.split("/")[0] in TOP:
                yield word


def exists(base: Path, path: str) -> bool:
    if "{" in path:
        return True
    return any(base.glob(path.rstrip("/"))) if "*" in path else (base / path).exists()


@by_page
def test_commands_and_their_options_exist(page: Page) -> None:
    wrong = [line for line in page.command_lines if (problem := problem_of(line)) and problem]
    assert {line: problem_of(line) for line in wrong} == {}


def problem_of(line: str) -> str:
    """Return what of a command line does not exist; nothing when all does, or when it is no command of ours."""
    words = words_of(line)
    match words:
        case ["milabench", *arguments]:
            return problem_of_arguments(arguments)
        case ["make", *targets]:
            return ", ".join(word for word in targets if "=" not in word and word not in make_targets())
        case ["python", "-m", module, *_] if module.split(".")[0] in PACKAGES:
            return "" if is_module(module) or is_module(f"{module}.__main__") else module
    return ""


def problem_of_arguments(arguments: list[str]) -> str:
    command: click.Command = program()
    # What may be left out or chosen stands in brackets.
    names, rest = ["milabench"], [word.strip("[]{}") for word in arguments if word != "[OPTIONS]"]
    rest = with_verb_joined(rest)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-") and not is_placeholder(rest[0]):
        child = command.get_command(click.Context(command), rest[0])
        if child is None:
            return f"{' '.join(names)}: no command {rest[0]}"
        command, names, rest = child, [*names, rest[0]], rest[1:]
    if isinstance(command, click.Group) and rest and is_placeholder(rest[0]):
        return ""
    problem = "" if names[1:2] and names[1] in FORWARDING else problem_of_values(command, rest)
    return f"{' '.join(names)}: {problem}" if problem else ""


def problem_of_values(command: click.Command, words: list[str]) -> str:
    """Return what a command does not take of its options, their choices and its arguments."""
    context = click.Context(command, help_option_names=["-h", "--help"])
    try:
        values, beyond, _ = command.make_parser(context).parse_args(list(words))
        for each in command.get_params(context):
            value = values.get(each.name)
            if isinstance(each.type, click.Choice) and isinstance(value, str) and not is_placeholder(value):
                each.type_cast_value(context, value)
    except click.NoSuchOption as error:
        return f"no option {error.option_name}"
    except click.UsageError as error:
        return error.format_message()
    beyond = [word for word in beyond if not is_placeholder(word)]
    return f"takes no {' '.join(beyond)}" if beyond else ""


def is_placeholder(word: str) -> bool:
    return word.isupper() or word in ("...",)


@pytest.mark.parametrize("page", OURS, ids=[page.name for page in OURS])
def test_options_in_backticks_exist(page: Page) -> None:
    named = {word.partition("=")[0] for span in page.spans for word in [span.split()[0]] if OPTION.fullmatch(word)}
    assert {option for option in named - OF_OTHER_PROGRAMS if option not in known_options()} == set()


@cache
def known_options() -> frozenset[str]:
    """Return every option of `milabench`, and every word of the instruments' sources that looks like one."""
    options = {"--help", "--version"}
    pending: list[click.Command] = [program()]
    while pending:
        command = pending.pop()
        options |= {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        if isinstance(command, click.Group):
            names = command.list_commands(click.Context(command))
            pending += [child for name in names if (child := command.get_command(click.Context(command), name))]
    for tree in PACKAGES.values():
        for path in tree.rglob("*.py"):
            options |= set(re.findall(r"--[a-z][\w-]*", path.read_text()))
    return frozenset(options)


def test_a_word_for_how_a_step_ends_is_one_of_the_program() -> None:
    page = Page(DOCS / "reference" / "protocol.md")
    tables = page.text.partition("## 5.")[2].partition("## 6.")[0]
    words = re.findall(r"^\| `([\w-]+)` \|", tables, re.M)
    sources = "".join(path.read_text() for tree in PACKAGES.values() for path in tree.rglob("*.py"))
    assert len(words) > 10
    assert [word for word in words if f'"{word}"' not in sources] == []


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("milabench run --config a.yaml -s b.c=1 --ab A.yaml B.yaml", ""),
        ("milabench frobnicate", "milabench: no command frobnicate"),
        ("A=1 milabench db add --nope | less", "milabench db add: no option --nope"),
        ("milabench report --format", "milabench report: Option '--format' requires an argument."),
        ("milabench config schema suites", "milabench config schema: Invalid value"),
        ("milabench new mine yours", "milabench new: takes no yours"),
        ("milabench ops -c FILE --exec-mode hot", ""),
        ("make test frob RETRY=1", "frob"),
        ("python -m benchmate.nothing", "benchmate.nothing"),
    ],
)
def test_a_command_that_does_not_exist_is_seen(line: str, problem: str) -> None:
    assert problem_of(line).startswith(problem) and bool(problem_of(line)) == bool(problem)


@cache
def program() -> click.Group:
    from milabench.cli.verbs import verbs

    return verbs


@cache
def make_targets() -> frozenset[str]:
    text = (ROOT / "Makefile").read_text().replace("$(VENV)", ".venv")
    return frozenset(re.findall(r"^([\w./-]+):", text, re.M))


@by_page
def test_symbols_in_backticks_exist(page: Page) -> None:
    named = [match[1] for span in page.spans if (match := SYMBOL.fullmatch(span))]
    assert [symbol for symbol in named if not is_symbol(symbol)] == []


def test_a_symbol_that_does_not_exist_is_seen() -> None:
    assert is_symbol("milabench.errors.MilabenchError.exit_code")
    assert not is_symbol("milabench.errors.Nothing")


def is_symbol(dotted: str) -> bool:
    """Whether a module, or a name at the top of one or in one of its classes, is called so; nothing is imported."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        file = module_file(".".join(parts[:length]))
        if file is not None:
            return length == len(parts) or defines(ast.parse(file.read_text()), parts[length:])
    return False


def is_module(dotted: str) -> bool:
    return module_file(dotted) is not None


def module_file(dotted: str) -> Path | None:
    top, *rest = dotted.split(".")
    # The folder is on the path of benchmate: its modules are imported as benchmate.NAME.
    paths = [folder.joinpath(*rest) for folder in (PACKAGES[top], PACKAGES[top] / "milabench13")]
    files = [file for path in paths for file in (path.with_suffix(".py"), path / "__init__.py")]
    return next((file for file in files if file.is_file()), None)


def defines(tree: ast.Module | ast.ClassDef, names: list[str]) -> bool:
    name, *rest = names
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=defined) if defined == name:
                return not rest or defines(node, rest)
            case ast.FunctionDef(name=defined) | ast.AsyncFunctionDef(name=defined) if defined == name:
                return not rest
            case ast.Name(id=defined, ctx=ast.Store()) | ast.alias(name=defined) if defined == name:
                return True
            case ast.Constant(value=text) if text == name and isinstance(tree, ast.Module):
                return True  # an entry of a table of names that are imported lazily
    return False


@by_page
def test_a_block_of_commands_is_run_or_is_an_illustration(page: Page) -> None:
    wrong = [block for block in page.blocks if block.language in COMMAND_LANGUAGES - {"console"} and not block.is_run]
    assert wrong == [], "write `sh run` for commands that the tests execute, `console` for an illustration"
    indented = [line for line in page.prose.splitlines() if re.match(r"( {4}|\t)(\$|milabench |make |python )", line)]
    assert indented == []
    silent = [block for block in page.blocks if block.language == "console" and not list(block.command_lines)]
    assert silent == [], "a console block shows commands behind `$ `"


@by_page
def test_blocks_of_data_and_code_can_be_read(page: Page) -> None:
    for block in page.blocks:
        match block.language:
            case "json":
                json.loads(block.text)
            case "yaml":
                yaml.compose(block.text, Loader=yaml.SafeLoader)
            case "python":
                missing = [name for name in imported_by(ast.parse(block.text)) if not is_symbol(name)]
                assert missing == []


def imported_by(tree: ast.Module) -> Iterator[str]:
    """Yield the dotted names of ours that some code imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_every_command_is_in_the_readme() -> None:
    from milabench.cli.verbs import COMMANDS

    page = (ROOT / "README.md").read_text()
    assert [name for name in COMMANDS if f"`{name}`" not in page and f"milabench {name}" not in page] == []


def test_every_exit_code_of_an_error_is_on_its_page() -> None:
    from milabench import errors

    page = (DOCS / "reference" / "exit-codes.md").read_text()
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.MilabenchError):
            row = next((line for line in page.splitlines() if f"milabench.errors.{kind.__name__}`" in line), "")
            assert row.startswith(f"| {kind.exit_code} |"), kind.__name__


def test_generated_pages_are_up_to_date() -> None:
    generate = docs_program()
    for page, render in generate.PAGES.items():
        assert page.read_text() == render(), f"{page}: run `make docs`"


def docs_program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_term_of_the_glossary_is_defined_once() -> None:
    terms = re.findall(r"\*\*([\w -]+)\*\* \|", (DOCS / "glossary.md").read_text())
    assert len(terms) > 50
    assert sorted({term for term in terms if terms.count(term) > 1}) == []
