"""Ranks of accelerate that do not know of each other fail: a launcher that starts two must not have two trainings."""

from __future__ import annotations

import pytest
from test_probes import run

ACCELERATE = """
class Accelerator:
    num_processes = {known}
    def backward(self, loss):
        pass
"""
TRAINING = """
    from accelerate.accelerator import Accelerator
    def batches():
        yield from range(1000)
    if __name__ == "__main__":
        accelerator = Accelerator()
        for batch in batches():
            accelerator.backward(batch)
"""
PROBES = 'probes.iterable(ov, "__main__.batches", units="items/s", batch_size=1)\nprobes.accelerated_ranks(ov)'


@pytest.mark.parametrize(("known", "fails"), [(1, True), (2, False)])
def test_ranks_that_train_each_for_itself_are_invalid(agent, tmp_path, known, fails):
    package = tmp_path / "accelerate"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "accelerator.py").write_text(ACCELERATE.format(known=known))
    ran = run(agent, tmp_path, TRAINING, PROBES, env={"PYTHONPATH": str(tmp_path), "WORLD_SIZE": "2"})
    said = agent.controls("fail")
    assert [fail["why"] for fail in said] == (["invalid"] if fails else [])
    assert (ran.code != 0) == fails
    assert all("of 2 ranks accelerate knows 1" in fail["detail"] for fail in said)
