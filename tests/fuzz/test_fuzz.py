"""Drawn input of every kind: no traceback, no hang, no more memory than there should be, output in its format."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.fuzz.__main__ import by_signature, fuzz, save, table
from tests.fuzz.kinds import KINDS

pytestmark = pytest.mark.e2e
INPUTS = 20_000


@pytest.mark.parametrize(
    ("minutes", "seed"),
    # The same inputs each time, and others each night; tests/fuzz/corpus is what every change waits for.
    [pytest.param(1, 0, marks=pytest.mark.long), pytest.param(10, int(time.time()) // 86400, marks=pytest.mark.long)],
    ids=["a minute", "ten minutes"],
)
def test_no_input_of_any_kind_has_a_defect(minutes: float, seed: int, tmp_path: Path) -> None:
    pool = fuzz(KINDS, inputs=INPUTS, seconds=60 * minutes, number=seed)
    groups = by_signature(pool.defects)
    save(groups, tmp_path / "defects")
    print(table(pool, 60 * minutes, seed))
    assert list(groups) == [], f"the inputs are in {tmp_path / 'defects'}"
    assert pool.inputs.keys() == KINDS.keys()
