"""A bundle is never called altered because a feature that computes its numbers is left out: the command says which it needs."""

from __future__ import annotations

import os
from pathlib import Path

from tests.commands import milabench_in
from tests.recorded_run import Recorded, data, rates, record

GOOD = [float(number).hex() for number in range(8)]


def test_verify_needs_the_feature_that_computed_the_numbers(tmp_path: Path) -> None:
    base, path = tmp_path / "base", tmp_path / "run.zip"
    answers = data(answers={"device": "H200", "first": GOOD, "again": GOOD})
    record(base, Recorded(events=(*rates(800, 800, 800), answers)))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MILABENCH_")}
    milabench = milabench_in({**kept, "MILABENCH_BASE": str(base)})
    assert milabench("bundle", "-o", str(path)).code == 0
    assert milabench("verify", str(path)).code == 0
    said = milabench_in({**kept, "MILABENCH_BASE": str(base), "MILABENCH_WITHOUT": "answers"})("verify", str(path))
    assert said.code == 2
    assert "needs the feature answers, which MILABENCH_WITHOUT leaves out" in said.err
