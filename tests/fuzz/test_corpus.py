"""What fuzzing found once stays mended; and the harness sees each kind of defect."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from milabench.cli.verbs import verbs
from tests.fuzz import valid, wire
from tests.fuzz.harness import ACCEPTED, Input, Pool, Special, Worker, read_input
from tests.fuzz.kinds import KINDS, SHARES
from tests.fuzz.worker import STATEMENTS

pytestmark = pytest.mark.slow
CORPUS = Path(__file__).parent / "corpus"
WIRE_KINDS = ("node", "server", "scheduler")


@pytest.fixture
def fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return valid.make(tmp_path / "fixed").folder


def test_every_defect_that_was_found_stays_mended(fixed: Path) -> None:
    paths = sorted(CORPUS.glob("*.json"))
    pool = Pool(fixed, one_in=0)
    with pool.running():
        for path in paths:
            pool.take(read_input(path))
    assert sum(pool.inputs.values()) == len(paths) > 0
    assert [(defect.input.name, defect.command, defect.what) for defect in pool.defects] == []


@pytest.mark.parametrize(
    "command",
    [
        "config check fixed/suite.yaml fixed/system.yaml",
        "plan run --config fixed/suite.yaml --system fixed/system.yaml",
        "accept fixed/good --criteria fixed/criteria.yaml --reference fixed/other",
        "compare fixed/good fixed/other --costs fixed/costs.yaml --weights fixed/weights.yaml",
        "outliers fixed/good --baseline fixed/baseline.json",
        "verify fixed/0.zip",
        "tender check fixed/procurement.yaml fixed/offer.yaml",
        "tender check fixed/procurement.yaml fixed/parts.yaml",
        "compare fixed/offer.yaml --tender fixed/procurement.yaml",
        "import fixed/foreign",
    ],
)
def test_what_is_mutated_is_valid_before(fixed: Path, command: str) -> None:
    done = CliRunner().invoke(verbs, command.replace("fixed", str(fixed)), standalone_mode=False)
    assert done.exception is None
    assert done.return_value in (0, None, *ACCEPTED)


@pytest.mark.parametrize("kind", WIRE_KINDS)
def test_what_comes_over_the_wire_is_an_answer_before_it_is_changed(
    fixed: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files: dict[str, dict[str, bytes | Special]] = {
        "node": {"where.json": b'{"kind": "none", "nth": 0}'},
        "server": {},
        "scheduler": dict(wire.record_cluster(fixed.parent / "cluster")),
    }
    if kind == "server":
        head, *pieces = wire.record_answers()[0]
        files["server"] = {"answer": head + b"\r\n" + b"".join(pieces)}
    Input(kind, files[kind], ()).write(fixed.parent / "in")
    assert wire.main([kind]) == 0
    said = capsys.readouterr().out
    assert {
        "node": "name='passed'" in said,
        "server": '"output_tokens": 4' in said and '"error": ""' in said,
        "scheduler": "'phase': 'running'" in said and "['n1', 'n2']" in said,
    }[kind], said


def test_two_of_five_inputs_come_over_the_wire() -> None:
    shares = {kind: SHARES.get(kind, 1) for kind in KINDS}
    assert sum(shares[kind] for kind in WIRE_KINDS) >= 0.4 * sum(shares.values())


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    folder = tmp_path_factory.mktemp("worker")
    worker = Worker(folder / "0", folder, limit_s=0.5)
    yield worker
    worker.end()


@pytest.mark.parametrize(
    ("statement", "defect"),
    [
        ("pass", ""),
        ("1 / 0", "traceback: ZeroDivisionError"),
        ("bytearray(700 << 20)", "traceback: MemoryError"),
        ("print('\\x1b[2J')", "control: "),
        ("import sys; print('\\u202e', file=sys.stderr)", "control: "),
        ("import sys; sys.exit(9)", "exit code: 9 is not documented"),
        ("import sys; sys.exit(2)", "message: exit code 2 without an error"),
        ("import sys; print('x' * 30_000, file=sys.stderr)", "message: a line of 30000 characters"),
        ("import os; os.system('echo Traceback \"(most recent call last)\" >&2')", "traceback: on standard error"),
    ],
)
def test_a_worker_sees_what_a_command_must_not_do(worker: Worker, statement: str, defect: str) -> None:
    answer = worker.run((STATEMENTS, statement)).defect
    assert answer.startswith(defect) and bool(answer) == bool(defect)


@pytest.mark.parametrize(
    ("statement", "defect"),
    [
        ("while True: pass", "hang: "),
        ("import time; time.sleep(1000)", "hang: "),
        ("import os; os._exit(3)", "died: 3"),
        ("import os; os.kill(os.getpid(), 11)", "died: -11"),
    ],
)
def test_a_worker_that_hangs_or_dies_is_replaced(tmp_path: Path, statement: str, defect: str) -> None:
    worker = Worker(tmp_path / "0", tmp_path, limit_s=1)
    assert worker.run((STATEMENTS, statement)).defect.startswith(defect)
    assert not worker.is_alive


def test_an_input_that_breaks_a_worker_is_kept_and_the_next_one_gets_another(tmp_path: Path) -> None:
    pool = Pool(tmp_path, count=1, one_in=0)
    statements = ("import os; os._exit(3)", "open('../outside', 'w')", "pass")
    with pool.running():
        for statement in statements:
            pool.take(Input("any", {"a": b"1"}, ((STATEMENTS, statement),)))
    assert [(defect.command[1], defect.what.splitlines()[0]) for defect in pool.defects] == [
        (statements[0], "died: 3"),
        (statements[1], "outside: wrote ['outside']"),
    ]
    assert pool.inputs.total() == 3


def test_an_input_is_read_from_the_corpus_as_it_was_saved(tmp_path: Path) -> None:
    files = {
        "a": b"text",
        "b": b"\xff\x00",
        "c": b"x" * 100_000,
        "d/e": Special("link", "/dev/zero"),
        "f": Special("pipe"),
    }
    given = Input("run", files, (("report", "in/run"),))
    path = tmp_path / "input.json"
    path.write_text(given.to_json())
    assert path.stat().st_size < 1000
    assert read_input(path) == given
