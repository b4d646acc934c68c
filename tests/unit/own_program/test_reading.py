"""What is read in a script, without running it."""

from __future__ import annotations

import ast

import pytest

from milabench.own_program.reading import FoundPause, Reading
from milabench.own_program.script import MAIN, Found, Script
from tests.commands import ROOT
from tests.own_programs import read as read_texts

PROGRAMS = ROOT / "tests" / "programs" / "own"


def reading(name: str) -> Reading:
    return read_texts((PROGRAMS / name).read_text())


def read(*lines: str, **modules: str) -> Reading:
    return read_texts("\n".join(lines), **modules)


def test_a_torch_script_has_loop_loader_loss_optimizer_and_validation_each_with_its_line() -> None:
    found = reading("torch_digits.py")
    assert found.loop == Found(what="for batch_idx, (data, target) in enumerate(train_loader)", line=38)
    assert found.loader == Found(what="train_loader", line=38)
    assert found.loss == Found(what="loss", line=43)
    assert found.optimizer == Found(what="optim.Adam", line=74)
    validation = FoundPause(target="__main__.test", name="validation", found=Found(what="test", line=78))
    assert found.pauses == (validation,)
    assert found.work == Found(what="--epochs", line=64)


def test_a_compiled_step_inside_a_function_marks_the_training_loop() -> None:
    found = reading("flax_mlp.py")
    assert found.loop == Found(what="for start in range(0, len(images) - BATCH_SIZE + 1, BATCH_SIZE)", line=44)
    assert found.loader is None
    assert found.work == Found(what="EPOCHS = 400", line=9)


def test_a_loop_inside_a_compiled_function_is_no_training_loop() -> None:
    found = read(
        "import jax", "@jax.jit", "def f(x):", "    for step in range(3):", "        x = train_step(x)", "f(1)"
    )
    assert found.loop is None


def test_a_loop_that_makes_data_is_no_training_loop() -> None:
    assert read("rows = []", "for row in range(10):", "    rows.append(row)").loop is None


def test_of_loops_over_epochs_and_batches_the_inner_one_trains() -> None:
    found = read("for epoch in range(3):", "    for batch in batches():", "        work(batch)")
    assert found.loop == Found(what="for batch in batches()", line=2)


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (("for epoch in range(9):", "    for at in range(0, n, args.batch_size):", "        work(at)"), 2),
        (
            ("def once(loader):", "    for x, y in loader:", "        work(x)", "for e in range(9):", "    once(data)"),
            2,
        ),
        (("for k in range(args.epochs):", "    work(k)"), 1),
        (
            (
                "def evaluate(batches):",
                "    for x in batches:",
                "        work(x)",
                "for step in range(9):",
                "    work(step)",
            ),
            4,
        ),
        (("for x in val_loader:", "    work(x)"), None),
        (("for row in rows:", "    work(row)"), None),
    ],
)
def test_a_loop_is_known_by_what_it_goes_over_too(lines: tuple[str, ...], line: int | None) -> None:
    found = read(*lines).loop
    assert (None if found is None else found.line) == line


def test_a_loop_in_a_module_beside_the_script_is_found_with_its_file() -> None:
    engine = "def fit(loader, optimizer):\n    for x in loader:\n        optimizer.step()\n"
    found = read("import torch", "from engine import fit", "fit(1, 2)", engine=engine)
    assert found.loop == Found(what="for x in loader", line=2, file="engine.py")
    assert dict(found.imports) == {"torch": 1}


def test_a_progress_bar_that_is_updated_is_no_step() -> None:
    assert read("for item in items:", "    pbar.update(1)").loop is None


def test_a_loop_over_written_values_is_over_models_and_not_over_steps() -> None:
    assert read("for rate in (0.1, 1.0):", "    net.partial_fit(x)").loop is None
    found = read("for epoch in range(3):", "    for net in [a, b]:", "        net.partial_fit(x)")
    assert found.loop == Found(what="for epoch in range(3)", line=1)


def test_parameters_that_are_updated_are_no_step() -> None:
    assert read("for setting in settings:", "    params.update(setting)").loop is None


def test_a_long_expression_is_shown_by_its_beginning() -> None:
    assert str(Found(what="for x in " + "y" * 99, line=2)) == f"`for x in {'y' * 48}...`, line 2"


def test_what_is_saved_in_a_loop_is_a_checkpoint() -> None:
    found = read("import torch", "for epoch in range(3):", "    torch.save(model, 'a.pt')", "torch.save(model, 'b.pt')")
    checkpoint = FoundPause(target="torch.save", name="checkpoint", found=Found(what="torch.save", line=3))
    assert found.pauses == (checkpoint,)


def test_a_validation_that_is_a_generator_or_unknown_is_no_pause() -> None:
    assert read("for epoch in range(3):", "    evaluate(model)").pauses == ()
    assert read("def evaluate():", "    yield 1", "for epoch in range(3):", "    evaluate()").pauses == ()


def test_a_name_that_is_imported_twice_is_known_by_both_names() -> None:
    script = Script(ast.parse("from xgboost import train as fit_it, train\nfit_it()\ntrain()"), MAIN)
    assert [call.name for call in script.calls] == ["xgboost.train", "xgboost.train"]
