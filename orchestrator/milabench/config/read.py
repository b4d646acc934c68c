"""The files of a suite, read: includes followed, overrides applied, everything checked. The only module here that
touches files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Final

from milabench.config.layers import Override, fold, parse_overrides
from milabench.config.matrix import MAX_BENCHMARKS
from milabench.config.parse import Declared, parse_suite
from milabench.config.problems import Problems
from milabench.config.schema import SYSTEM, Suite
from milabench.config.source_map import DELETED, Located, Mark, SourceLocation, display_value, mapping_at, plain
from milabench.config.yaml_reader import MAX_BYTES, MAX_VALUES, Document, decode_text, parse_document
from milabench.devices.regular_file import open_regular, read_regular
from milabench.errors import MAX_PROBLEMS, ConfigError, Problem, os_reason
from milabench.redaction import learn, values_in, values_in_environment

MAX_FILES: Final = 1_000
MAX_CHAIN: Final = 100
SYSTEM_KEYS: Final = ("include", "system", "multirun")


def read_suite(
    files: Sequence[Path],
    system: Path | None = None,
    overrides: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    *,
    detected_arch: str = "cpu",
    declared: Declared | None = None,
    max_benchmarks: int = MAX_BENCHMARKS,
    settings: Mapping[str, str] | None = None,
) -> Suite:
    """Return the suite that these files, this system file and these overrides make together. Later files win.

    `env` is the environment for `${oc.env:...}`. `detected_arch` is used where the system file names no arch. `declared`
    gives the extra keys of the benchfile in a folder. `settings` are overrides that environment variables and other
    options imply, by option. `overrides` win over them. Raises ConfigError with every problem found.
    """
    # Before anything is parsed: what is wrong with a text is told with the text.
    learn([*values_in_environment(env or {}), *values_in(list(overrides))])
    problems = Problems(most=MAX_PROBLEMS)
    loader = _Loader(problems)
    roots: list[Located] = []
    for file in files:
        roots.extend(loader.layers(str(file), None, ()))
    if system is not None:
        roots.extend(_system_layers(loader, system, problems))
    parsed: list[Override] = []
    here = str(Path.cwd())
    labelled = [*(settings or {}).items(), *((None, text) for text in overrides)]
    for name, text in labelled:
        with problems.taking():
            parsed.extend(parse_overrides(text, here, name))
    learn(values_in([*map(plain, roots), *(plain(override.tree(0)) for override in parsed)]))
    # A file that cannot be read would make everything that refers to it look wrong: say only what is.
    problems.raise_any()
    folded = fold(roots, parsed, problems, max_benchmarks)
    return parse_suite(
        folded,
        problems,
        arch=detected_arch,
        env=env or {},
        declared=declared,
        repeated=tuple(chain.from_iterable(document.repeated for document in loader.files.values())),
        warnings=(
            *chain.from_iterable(document.warnings for document in loader.files.values()),
            *chain.from_iterable(override.warnings for override in parsed),
        ),
        files=tuple(loader.files),
    )


def content_of(file: Path, most: int) -> bytes:
    """Return a file that a suite names, of at most so many bytes. Raises ConfigError where it cannot be read."""
    try:
        return read_regular(file, most)
    except OSError as error:
        what = f"cannot be read: {os_reason(error)}"
        raise ConfigError(Problem(str(file), "", what, "is the path right?")) from None


def _system_layers(loader: _Loader, system: Path, problems: Problems) -> list[Located]:
    layers = loader.layers(str(system), None, ())
    for layer in layers:
        for key, node in layer.value.items():
            if key not in SYSTEM_KEYS:
                hint = "it has 'system' and 'multirun'. Benchmarks belong in a suite file"
                problems.note(str(node.key or node.mark), key, f"unknown key {key!r} in a system file", hint)
    return layers


def _is_system_without_root(root: Located) -> bool:
    """Return whether a file holds the keys of `system:`, and nothing else."""
    nodes, arch = root.value.get("nodes"), root.value.get("arch")
    has_values = (nodes is not None and type(nodes.value) is list) or (arch is not None and isinstance(arch.value, str))
    return has_values and root.value.keys() <= SYSTEM.keys.keys()


class _Loader:
    """Reads files and their includes, each from the disk once."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.documents: dict[str, Document | None] = {}
        self.files: dict[Path, Document] = {}
        self.count = 0
        self.values = 0

    def layers(self, name: str, asked_at: Mark | None, chain: tuple[tuple[str, str], ...]) -> list[Located]:
        """Return the roots of a file: the roots of its includes, depth first, then its own.

        `name` is how messages call it, `asked_at` where it is included, `chain` the names and real paths of the
        files that led here.
        """
        path = Path(name).expanduser()
        # Two names of one file would hide a cycle; messages keep the name that the user wrote.
        real = os.path.realpath(path)
        if real in [link for _, link in chain]:
            self._include_problem(asked_at, chain, "the includes form a cycle", name)
            return []
        if len(chain) >= MAX_CHAIN:
            self._include_problem(asked_at, chain, f"files include each other more than {MAX_CHAIN} deep", name)
            return []
        # There need be no cycle: files that each include the next one twice come to 2**n layers.
        self.count += 1
        if self.count > MAX_FILES:
            if self.count == MAX_FILES + 1:
                self._include_problem(asked_at, chain, f"more than {MAX_FILES} files are included", name)
            return []
        document = self._document(path, real, name, asked_at, chain)
        if document is None:
            return []
        self.values += document.values
        if self.values > MAX_VALUES:
            self._include_problem(asked_at, chain, f"the files hold more than {MAX_VALUES} values", name)
            self.problems.raise_any()
        root = document.root
        layers: list[Located] = []
        for included in self._includes(root):
            text = os.path.expanduser(str(included.value))  # noqa: PTH111  stays text: how the user wrote it is shown
            shown_as = text if os.path.isabs(text) else os.path.normpath(os.path.join(os.path.dirname(name), text))  # noqa: PTH117, PTH118, PTH120
            layers.extend(self.layers(shown_as, included.mark, (*chain, (name, real))))
        own = {key: node for key, node in root.value.items() if key != "include"}
        layers.append(Located(own, root.mark, flags=mapping_at(own, root.mark).flags))
        return layers

    def _document(
        self, path: Path, real: str, name: str, asked_at: Mark | None, chain: tuple[tuple[str, str], ...]
    ) -> Document | None:
        if real in self.documents:
            return self.documents[real]
        document: Document | None = None
        try:
            document = self._read(path, name)
        except OSError as error:
            if asked_at is None:
                self.problems.note(name, "", f"cannot be read: {os_reason(error)}", "is the path right?")
            else:
                self._include_problem(asked_at, chain, f"the included file cannot be read ({os_reason(error)})", name)
        except ConfigError as error:
            self.problems.take(error)
        if document is not None:
            self.files[Path(os.path.abspath(path))] = document  # noqa: PTH100  links stay as they are
        self.documents[real] = document
        return document

    def _read(self, path: Path, name: str) -> Document:
        with open_regular(path) as stream:
            content = stream.read(MAX_BYTES + 1)
        source = SourceLocation(name, os.path.dirname(os.path.abspath(path)))  # noqa: PTH100, PTH120  links stay as they are
        document = parse_document(decode_text(content, name), source, keeps_repeated=True)
        root = document.root
        if root.value is None:
            return Document(root=mapping_at({}, root.mark))
        if type(root.value) is not dict:
            what = f"expected a mapping from name to benchmark, got {display_value(root)}"
            raise ConfigError(Problem(str(root.mark), "", what))
        if _is_system_without_root(root):
            what = "the keys of a system, which are read as if they were below `system:`"
            note = Problem(
                str(root.mark), "", what, "write that line above them: milabench 1.3 ignores them without it"
            )
            system = mapping_at({"system": root}, root.mark)
            return replace(document, root=system, warnings=(*document.warnings, note))
        return document

    def _includes(self, root: Located) -> list[Located]:
        node = root.value.get("include")
        if node is None or node.value is None or node.value is DELETED:
            return []
        items = node.value if type(node.value) is list else [node]
        good: list[Located] = []
        for item in items:
            if isinstance(item.value, str) and item.value:
                good.append(item)
            else:
                self.problems.note(item.mark, "include", f"expected the path of a file, got {display_value(item)}")
        return good

    def _include_problem(self, asked_at: Mark | None, chain: tuple[tuple[str, str], ...], what: str, name: str) -> None:
        links = " -> ".join([link for link, _ in chain] + [name])
        self.problems.note(str(asked_at) if asked_at is not None else name, "include", f"{what}: {links}")
