"""The first steps of a program, made once more after its window: the same batches, random numbers and parameters."""

from __future__ import annotations

import importlib.util
import json
import textwrap

import pytest
from agent import QUICK, Agent

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

STEPS = 6
VOIRFILE = """
from benchmate import probes

def instrument_main(ov):
    probes.loader(ov, "//make_loader() as loader", units="items/s", batch_size=1)
    probes.loss(ov, "//train > loss")
"""
PLAIN = """
import random, sys

def make_loader():
    return range(100000)

def train(loader, faulty_step):
    for step, batch in enumerate(loader):
        loss = batch + random.random() + (step == faulty_step) * 0.5

if __name__ == "__main__":
    train(make_loader(), int(sys.argv[1]))
"""
TORCH = """
import sys
import torch

def make_loader():
    return [(torch.randn(8, 4), torch.randn(8)) for _ in range(10000)]

def train(loader):
    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x).squeeze(1), y)
        loss.backward()
        if step == int(sys.argv[1]):
            model[0].weight.grad[0, 0] += 1.0
        optimizer.step()
        schedule.step()

if __name__ == "__main__":
    train(make_loader())
"""


def answers(
    agent: Agent, tmp_path, script: str, *arguments: str, voirfile: str = VOIRFILE, **asked: object
) -> dict | None:
    """What a program recorded of its answers, None for nothing; `measure` is short, so that the window is over soon."""
    config = {"answers": {"steps": STEPS, "seed": 3, **asked}, **QUICK}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for name, text in (("voirfile.py", voirfile), ("script.py", script)):
        (tmp_path / name).write_text(textwrap.dedent(text))
    options = ("--config", str(tmp_path / "config.json"), "--voirfile", str(tmp_path / "voirfile.py"))
    ran = agent.run(*options, str(tmp_path / "script.py"), *arguments)
    assert ran.code == 0, ran.stderr
    found = [record["answers"] for record in agent.records() if "answers" in record]
    assert len(found) <= 1
    return found[0] if found else None


def test_the_first_steps_are_made_again_and_give_the_same(agent, tmp_path):
    found = answers(agent, tmp_path, PLAIN, "-1")
    assert len(found["first"]) == STEPS
    assert found["again"] == found["first"]
    assert [int(float.fromhex(loss)) for loss in found["first"]] == list(range(STEPS))
    # They are no part of the window, and no steps of it are lost.
    entries = agent.entries()
    assert [window["why"] for window in agent.windows()] == ["complete"]
    assert entries[-1].batch_id == len(entries) - 1


def test_a_wrong_result_of_the_first_time_differs_from_its_step_on(agent, tmp_path):
    found = answers(agent, tmp_path, PLAIN, "3")
    assert [one == other for one, other in zip(found["first"], found["again"], strict=True)] == [
        *[True] * 3,
        False,
        *[True] * 2,
    ]


def test_a_program_that_leaves_its_loop_while_the_steps_are_made_again_has_no_answers(agent, tmp_path):
    script = PLAIN.replace("        loss =", "        if step > 8 and batch == 2:\n            break\n        loss =")
    config = {"answers": {"steps": STEPS}, **QUICK}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for name, text in (("voirfile.py", VOIRFILE), ("script.py", script)):
        (tmp_path / name).write_text(text)
    options = ("--config", str(tmp_path / "config.json"), "--voirfile", str(tmp_path / "voirfile.py"))
    ran = agent.run(*options, str(tmp_path / "script.py"), "-1")
    assert ran.code == 0, ran.stderr
    assert [window["why"] for window in agent.windows()] == ["complete"]
    assert [record for record in agent.records() if "answers" in record] == []
    [said] = [record["message"] for record in agent.records("message") if "answers" in record["message"]]
    assert said == "answers: none: the program left its loop while its first steps were made again"


def test_a_program_that_ends_before_its_window_has_no_answers_and_says_so(agent, tmp_path):
    script = PLAIN.replace("range(100000)", "range(4)")
    config = {"answers": {"steps": STEPS}, **QUICK}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for name, text in (("voirfile.py", VOIRFILE), ("script.py", script)):
        (tmp_path / name).write_text(textwrap.dedent(text))
    options = ("--config", str(tmp_path / "config.json"), "--voirfile", str(tmp_path / "voirfile.py"))
    agent.run(*options, str(tmp_path / "script.py"), "-1")
    [said] = [record["message"] for record in agent.records("message") if "answers" in record["message"]]
    assert said.startswith(f"answers: none, for the program did not begin {STEPS + 1} steps")


@pytest.mark.parametrize(
    ("methods", "sentence"),
    [
        ("def copy(self): raise TypeError('no copy')", "answers: none: a batch cannot be kept: TypeError: no copy"),
        (
            "def copy(self):\n        Batch.copies += 1\n        assert Batch.copies < 8, 'once'\n        return Batch(self)",
            "answers: none: the program cannot be set back: AssertionError: once",
        ),
    ],
)
def test_a_batch_that_cannot_be_copied_costs_the_answers_and_not_the_program(agent, tmp_path, methods, sentence):
    batch = f"class Batch(dict):\n    copies = 0\n    {methods}\n\n"
    script = batch + PLAIN.replace("range(100000)", "[Batch(x=1)] * 100000").replace("batch +", "batch['x'] +")
    config = {"answers": {"steps": STEPS}, **QUICK}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for name, text in (("voirfile.py", VOIRFILE), ("script.py", script)):
        (tmp_path / name).write_text(text)
    options = ("--config", str(tmp_path / "config.json"), "--voirfile", str(tmp_path / "voirfile.py"))
    ran = agent.run(*options, str(tmp_path / "script.py"), "-1")
    assert ran.code == 0, ran.stderr
    assert [window["why"] for window in agent.windows()] == ["complete"]
    assert [record["message"] for record in agent.records("message") if "answers" in record["message"]] == [sentence]


@pytest.mark.parametrize(
    ("batch", "value", "change"),
    [
        ("class Batch(list):\n    def first(self): return self[0]\n", "batch.first()", "batch[0] += 1"),
        ("class Batch:\n    def __init__(self, x): self.x, = x\n", "batch.x", "batch.x += 1"),
    ],
)
def test_a_batch_is_what_it_was_whatever_its_class_and_what_the_program_did_to_it(
    agent, tmp_path, batch, value, change
):
    script = batch + PLAIN.replace("range(100000)", "[Batch([number]) for number in range(1000)]")
    script = script.replace("loss = batch +", f"{change}; loss = {value} +")
    found = answers(agent, tmp_path, script, "-1")
    assert [int(float.fromhex(loss)) for loss in found["first"]] == list(range(1, STEPS + 1))
    assert found["again"] == found["first"]


@needs_torch
def test_nothing_is_kept_of_a_program_that_has_no_answers(agent, tmp_path):
    script = """
        import gc, weakref, torch
        def make_loader():
            return [torch.ones(2), torch.ones(2), (number for number in ()), *[torch.ones(2)] * 5]
        def train(loader):
            parameter = torch.nn.Parameter(torch.ones(2))
            optimizer = torch.optim.SGD([parameter], lr=0.1)
            for batch in loader:
                loss = parameter.sum()
                loss.backward()
                optimizer.step()
            optimizer.zero_grad()
            return weakref.ref(optimizer)
        if __name__ == "__main__":
            reference = train(make_loader())
            gc.collect()
            print(reference())
    """
    config = {"answers": {"steps": STEPS}, "measure": {**QUICK["measure"], "window_steps": 100}}
    files = {"config.json": json.dumps(config), "voirfile.py": VOIRFILE, "script.py": textwrap.dedent(script)}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    options = ("--config", str(tmp_path / "config.json"), "--voirfile", str(tmp_path / "voirfile.py"))
    ran = agent.run(*options, str(tmp_path / "script.py"))
    [said] = [record["message"] for record in agent.records("message") if "answers" in record["message"]]
    assert said.startswith("answers: none: a batch cannot be kept: ")
    assert (ran.code, ran.stdout) == (0, "None\n"), ran.stderr


@needs_torch
def test_parameters_optimizers_and_random_numbers_are_set_back(agent, tmp_path):
    found = answers(agent, tmp_path, TORCH, "-1", gradients=True)
    assert len(found["first"]) == STEPS
    assert found["again"] == found["first"]
    assert len(set(found["first"])) == STEPS
    assert found["gradients"]["again"] == found["gradients"]["first"]
    assert len(found["gradients"]["first"]) == STEPS


@needs_torch
def test_a_wrong_gradient_shows_in_its_norm_and_in_the_next_loss(agent, tmp_path):
    found = answers(agent, tmp_path, TORCH, "2", gradients=True)
    losses = [one == other for one, other in zip(found["first"], found["again"], strict=True)]
    norms = [one == other for one, other in zip(found["gradients"]["first"], found["gradients"]["again"], strict=True)]
    assert losses == [True, True, True, False, False, False]
    assert norms[:3] == [True, True, False]


FETCHED = """
import random, sys

def fetch(batches):
    return next(batches)

def step(batch, number, faulty_step):
    return batch + random.random() + (number == faulty_step) * 0.5

if __name__ == "__main__":
    batches = iter(range(1, 100000))
    for number in range(100000):
        step(fetch(batches), number, int(sys.argv[1]))
"""
CALLS = """
from benchmate import probes

def instrument_main(ov):
    probes.calls(ov, "__main__.step", units="items/s", loss=lambda loss: loss)
    probes.batches(ov, "__main__.fetch")
"""


def test_the_batches_of_a_function_are_given_again(agent, tmp_path):
    found = answers(agent, tmp_path, FETCHED, "-1", voirfile=CALLS)
    assert [int(float.fromhex(loss)) for loss in found["first"]] == list(range(1, STEPS + 1))
    assert found["again"] == found["first"]
    # The window is the same: no step of it is lost, and none of those that are made again is in it.
    entries = agent.entries()
    assert [window["why"] for window in agent.windows()] == ["complete"]
    assert entries[-1].batch_id == len(entries) - 1


def test_a_wrong_result_of_a_step_that_was_fetched_is_found(agent, tmp_path):
    found = answers(agent, tmp_path, FETCHED, "3", voirfile=CALLS)
    assert [one == other for one, other in zip(found["first"], found["again"], strict=True)].index(False) == 3


def test_a_loop_without_an_observed_loader_says_what_to_write(agent, tmp_path):
    without = CALLS.replace('    probes.batches(ov, "__main__.fetch")\n', "")
    assert answers(agent, tmp_path, FETCHED, "-1", voirfile=without) is None
    [said] = [record["message"] for record in agent.records("message") if "answers" in record["message"]]
    assert said.endswith('or name the function that returns each batch: probes.batches(ov, "module.function")')
