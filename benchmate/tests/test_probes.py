"""Each kind of probe on a program that knows nothing of it."""

from __future__ import annotations

import importlib.util
import textwrap
from pathlib import Path

import pytest
from agent import QUICK

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return str(path)


def run(agent, tmp_path, script, probes, config=QUICK, **more):
    body = textwrap.indent(textwrap.dedent(probes).strip(), "    ")
    text = f"from benchmate import metric, observe_loss, option, probes\ndef instrument_main(ov):\n{body}\n"
    voirfile = write(tmp_path, "voirfile.py", text)
    return agent.run("--voirfile", voirfile, write(tmp_path, "script.py", script), config=config, **more)


GENERATOR = """
    def dataset(n):
        for index in range(n):
            yield [index] * 3
    def main():
        for step, batch in enumerate(dataset(1000)):
            pass
    if __name__ == "__main__":
        main()
"""


def test_a_generator_of_the_script_is_replaced(agent, tmp_path):
    ran = run(agent, tmp_path, GENERATOR, 'probes.iterable(ov, "__main__.dataset", units="items/s", batch_size=len)')
    assert (ran.code, ran.stderr) == (0, "")
    assert [entry.n for entry in agent.entries()] == [3] * 7


def test_a_builtin_can_be_replaced_for_one_loop_at_module_level(agent, tmp_path):
    script = """
        if __name__ == "__main__":
            for update in range(1, 1000):
                for step in range(0, 4):
                    pass
    """
    probe = 'probes.iterable(ov, "__main__.range", units="steps/s", batch_size=4, when=lambda start, *rest: start == 1)'
    assert run(agent, tmp_path, script, probe).code == 0
    assert [entry.n for entry in agent.entries()] == [4] * 7


LIBRARY = """
    class Loop:
        def run(self, batches, epochs=1):
            total = 0
            for batch in batches:
                total += self.step(batch)
            return total
        def step(self, batch):
            return float(batch)
"""


def test_an_argument_of_a_library_that_is_imported_late_is_observed(agent, tmp_path):
    write(tmp_path, "library.py", LIBRARY)
    script = (
        "def main():\n    from library import Loop\n    Loop().run(range(1000))\nif __name__ == '__main__':\n    main()"
    )
    ran = run(
        agent, tmp_path, script, 'probes.argument(ov, "library.Loop.run", "batches", units="items/s", batch_size=2)'
    )
    assert (ran.code, ran.stderr) == (0, "")
    assert [entry.n for entry in agent.entries()] == [2] * 7


def test_each_call_is_a_step_and_its_result_may_be_the_loss(agent, tmp_path):
    write(tmp_path, "library.py", LIBRARY)
    script = "from library import Loop\nLoop().run(range(1000))"
    probe = """
        probes.calls(ov, "library.Loop.step", units="items/s", items=lambda loop, batch: batch,
                     when=lambda loop, batch: batch % 2 == 0, loss=lambda result: result)
    """
    assert run(agent, tmp_path, script, probe).code == 0
    assert [entry.n for entry in agent.entries()] == [2, 4, 6, 8, 10, 12, 14]
    assert agent.losses() == [0, 2, 4, 6, 8, 10, 12, 14]


def test_static_and_class_methods_and_functions_of_submodules_can_be_patched(agent, tmp_path):
    write(tmp_path, "pack/__init__.py", "from .inner import K")
    write(
        tmp_path,
        "pack/inner.py",
        """
        class K:
            @staticmethod
            def s(x): return x
            @classmethod
            def c(cls, x): return (cls.__name__, x)
    """,
    )
    script = "import pack\nprint(pack.K.s(1), pack.K().s(2), pack.K.c(3), pack.K().c(4))"
    probe = """
        probes.result(ov, "pack.inner.K.s", lambda value: metric("s", value))
        probes.result(ov, "pack.K.c", lambda value: metric("c", value[1]))
    """
    ran = run(agent, tmp_path, script, probe)
    assert (ran.code, ran.stdout) == (0, "1 2 ('K', 3) ('K', 4)\n")
    assert [(data["metric"], data["value"]) for data in agent.records() if data.get("metric") in ("s", "c")] == [
        ("s", 1),
        ("s", 2),
        ("c", 3),
        ("c", 4),
    ]


def test_a_function_that_is_an_object_keeps_its_methods(agent, tmp_path):
    script = """
        import functools
        class Base:
            @classmethod
            def make(cls): return cls()
        class Model(Base):
            @classmethod
            def load(cls): return cls()
        @functools.cache
        def step(number): return number
        if __name__ == "__main__":
            for number in range(5): step(number)
            step.cache_clear()
            print(type(Model.load()).__name__, type(Model.make()).__name__, step.cache_info().currsize)
    """
    probe = """
        probes.calls(ov, "__main__.step", units="steps/s", stop=False)
        probes.result(ov, "__main__.Model", id, required=False)
    """
    ran = run(agent, tmp_path, script, probe)
    assert (ran.code, ran.stdout) == (0, "Model Model 0\n"), ran.stderr


@pytest.mark.parametrize(
    ("probe", "why"),
    [
        ('probes.iterable(ov, "late.Loader.batches", units="steps/s")', "late.Loader.batches is a property"),
        ('probes.iterable(ov, "late.stream", units="steps/s")', "late.stream is async"),
        ('probes.pause(ov, "late.stream", name="stream")', "late.stream is a generator or async"),
        ('probes.argument(ov, "late.native", "x", units="steps/s")', "ValueError: no signature found"),
        ('probes.calls(ov, "late.step", units="steps/s", when=lambda batch: batch)', "is ambiguous"),
        ('probes.iterable(ov, "late.load", units="steps/s", when=lambda batch: batch)', "is ambiguous"),
    ],
)
def test_a_probe_that_cannot_work_fails_the_step_and_the_program_goes_on(agent, tmp_path, probe, why):
    write(
        tmp_path,
        "late.py",
        """
        native = max
        class Loader:
            @property
            def batches(self): return [1, 2]
        class Batch:
            def __bool__(self): raise ValueError("the truth value of a batch is ambiguous")
        async def stream():
            yield 1
        def step(batch): return 1
        def load(batch): return [2]
        """,
    )
    script = """
        import asyncio
        async def collect(): return [batch async for batch in late.stream()]
        import late
        batch = late.Batch()
        print(late.Loader().batches, asyncio.run(collect()), late.native(1, 2), late.step(batch), late.load(batch))
    """
    ran = run(agent, tmp_path, script, probe)
    assert (ran.code, ran.stdout) == (1, "[1, 2] [1] 2 1 [2]\n"), ran.stderr
    assert why in agent.controls("fail")[0]["detail"]


def test_a_module_that_the_runner_watches_too_can_be_patched(agent, tmp_path):
    # The runner waits for jax.monitoring, in order to count what is compiled.
    write(tmp_path, "jax/__init__.py", "from . import monitoring, lax")
    write(tmp_path, "jax/monitoring.py", "")
    write(tmp_path, "jax/lax.py", "def scan(x): return x")
    probe = 'probes.result(ov, "jax.lax.scan", lambda value: metric("scanned", value))'
    ran = run(agent, tmp_path, "import jax\nprint(jax.lax.scan(3))", probe)
    assert (ran.code, ran.stdout) == (0, "3\n")
    assert [data["value"] for data in agent.records() if data.get("metric") == "scanned"] == [3]


def test_a_lazy_module_is_not_loaded_and_the_failure_names_the_defining_module(agent, tmp_path):
    write(
        tmp_path,
        "lazy/__init__.py",
        """
        def __getattr__(name):
            if name == "Trainer":
                print("woken")
                from .trainer import Trainer
                return Trainer
            raise AttributeError(name)
    """,
    )
    write(tmp_path, "lazy/trainer.py", "class Trainer:\n    def step(self): pass")
    ran = run(agent, tmp_path, "import lazy\nprint('end')", 'probes.calls(ov, "lazy.Trainer.step", units="steps/s")')
    assert ran.stdout.startswith("end\n")
    assert "Name the module that defines it: lazy.trainer.Trainer" in agent.controls("fail")[0]["detail"]


def test_a_criterion_is_observed_and_a_value_replaced(agent, tmp_path):
    script = """
        class Loss:
            reduction = "mean"
            def __call__(self, x): return float(x)
        def make_criterion():
            return Loss()
        def parse_args():
            return 5
        if __name__ == "__main__":
            criterion = make_criterion()
            print(criterion.reduction, [criterion(i) for i in range(parse_args())])
    """
    probe = """
        probes.criterion(ov, "//make_criterion() as criterion")
        probes.replace(ov, "//parse_args() as args", lambda args: args - option("fewer"))
    """
    ran = run(agent, tmp_path, script, probe, config={"options": {"fewer": 2}})
    assert (ran.code, ran.stdout) == (0, "mean [0.0, 1.0, 2.0]\n")
    assert agent.losses() == [0, 1, 2]


@needs_torch
def test_a_criterion_of_torch_stays_a_module(agent, tmp_path):
    script = """
        import pickle, torch
        class Scaled(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = torch.nn.Parameter(torch.ones(()))
            def forward(self, x): return (x * self.scale).sum()
        def make_criterion(): return Scaled()
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.criterion = make_criterion()
        if __name__ == "__main__":
            moved = make_criterion().to("cpu")
            print(len(list(Model().parameters())), [moved(torch.ones(2)).item() for _ in range(2)])
            pickle.dumps(moved)
    """
    ran = run(agent, tmp_path, script, 'probes.criterion(ov, "//make_criterion() as criterion")')
    assert (ran.code, ran.stdout) == (0, "1 [2.0, 2.0]\n"), ran.stderr
    assert agent.losses() == [2, 2]


def test_a_variable_may_be_a_loss_and_a_result_a_metric(agent, tmp_path):
    script = """
        def train(n):
            for step in range(n):
                loss = 1 / (step + 1)
        def evaluate():
            return 0.75
        if __name__ == "__main__":
            train(4)
            evaluate()
    """
    probe = """
        probes.loss(ov, "//train > loss")
        probes.value(ov, "//evaluate() as accuracy", lambda v: metric("accuracy", v, units="fraction", direction="higher"))
    """
    assert run(agent, tmp_path, script, probe).code == 0
    assert agent.losses() == [1, 1 / 2, 1 / 3, 1 / 4]
    assert agent.metrics()["accuracy"] == 0.75


@pytest.mark.parametrize("value", ["float('nan')", "float('inf')"])
def test_a_loss_that_is_not_finite_fails_the_step_and_says_where(agent, tmp_path, value):
    script = f"import benchmate\nfor step in range(5):\n    benchmate.observe_loss(1.0 if step < 3 else {value})"
    assert run(agent, tmp_path, script, "pass").code == 1
    (fail,) = agent.controls("fail")
    assert fail["why"] == "invalid"
    assert "at step 3" in fail["detail"]


def test_an_error_in_a_function_of_the_voirfile_fails_the_step_not_the_script(agent, tmp_path):
    probe = 'probes.iterable(ov, "__main__.dataset", units="items/s", batch_size=lambda batch: batch.nothing)'
    ran = run(agent, tmp_path, GENERATOR, probe)
    assert ran.code == 1
    assert {fail["why"] for fail in agent.controls("fail")} == {"probe"}
    assert "AttributeError" in agent.controls("fail")[0]["detail"]
    assert "Traceback" not in ran.stderr


def test_an_argument_of_a_decorated_function_is_observed_however_it_is_given(agent, tmp_path):
    script = """
        import functools
        def logged(function):
            @functools.wraps(function)
            def inner(*args, verbose=False, **more): return function(*args, **more)
            return inner
        @logged
        def train(epochs, batches): return [len(batch) for batch in batches]
        if __name__ == "__main__":
            print(train(1, [[1]] * 2, verbose=True), train(1, batches=[[2]] * 2))
    """
    probe = 'probes.argument(ov, "__main__.train", "batches", units="items/s", batch_size=len)'
    ran = run(agent, tmp_path, script, probe)
    assert (ran.code, ran.stdout) == (0, "[1, 1] [1, 1]\n"), ran.stderr
    assert len(agent.entries()) == 4


def test_an_argument_that_does_not_exist_is_named_with_those_that_do(agent, tmp_path):
    write(tmp_path, "library.py", LIBRARY)
    run(agent, tmp_path, "import library", 'probes.argument(ov, "library.Loop.run", "batch", units="items/s")')
    assert "has no argument 'batch'. It has self, batches, epochs" in agent.controls("fail")[0]["detail"]


def test_a_probe_on_json_does_not_affect_the_records(agent, tmp_path):
    probe = 'probes.patch(ov, "json.dumps", lambda original: lambda *args, **more: 1 / 0, required=False)'
    assert run(agent, tmp_path, "import json", probe).code == 0


def test_watching_for_imports_leaves_module_loaders_unchanged(agent, tmp_path):
    write(tmp_path, "library.py", LIBRARY)
    script = """
        import importlib, inspect, library
        print(type(library.__loader__).__name__, "class Loop" in inspect.getsource(library))
        importlib.reload(library)
    """
    ran = run(agent, tmp_path, script, 'probes.calls(ov, "library.Loop.step", units="x/s", required=False)')
    assert (ran.code, ran.stdout) == (0, "SourceFileLoader True\n")


# torch

TRAIN = """
    import sys, torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(40, 4), torch.randint(0, 2, (40,)))
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = torch.nn.CrossEntropyLoss()
    for epoch in range(1000):
        for x, y in DataLoader(data, batch_size=16, num_workers=int(sys.argv[1]) if len(sys.argv) > 1 else 0):
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            for x, y in DataLoader(data, batch_size=20):
                model(x)
"""


@needs_torch
def test_every_loop_over_a_dataloader_at_module_level_is_observed(agent, tmp_path):
    probe = """
        probes.dataloader(ov, units="samples/s")
        probes.result(ov, "torch.nn.functional.cross_entropy", observe_loss)
    """
    ran = run(agent, tmp_path, TRAIN, probe)
    assert (ran.code, ran.stderr) == (0, "")
    assert [entry.n for entry in agent.entries()] == [16, 16, 8, 16, 16, 8, 16]
    assert [entry.n for entry in agent.entries("validation")] == [20] * 4
    assert len(agent.losses()) == 7
    assert agent.malformed == []


@needs_torch
def test_a_loop_over_the_loader_of_torchdata_is_observed(agent, tmp_path):
    write(
        tmp_path,
        "torchdata/stateful_dataloader/stateful_dataloader.py",
        """
        from torch.utils.data import DataLoader
        class StatefulDataLoader(DataLoader):
            def __iter__(self):
                return self._get_iterator()
        """,
    )
    script = """
        from torchdata.stateful_dataloader.stateful_dataloader import StatefulDataLoader
        for batch in StatefulDataLoader(range(1000), batch_size=4):
            pass
    """
    assert run(agent, tmp_path, script, 'probes.dataloader(ov, units="samples/s")').code == 0
    assert [entry.n for entry in agent.entries()] == [4] * 7


@needs_torch
def test_workers_of_a_loader_are_gone_after_an_early_stop(agent, tmp_path):
    script = TRAIN.replace("import sys, torch", "import sys, torch, atexit, multiprocessing").replace(
        "for epoch",
        "atexit.register(lambda: print(multiprocessing.active_children()))\n    for epoch",
    )
    voirfile = write(
        tmp_path,
        "voirfile.py",
        "from benchmate import probes\ndef instrument_main(ov):\n    probes.dataloader(ov, units='samples/s')\n",
    )
    ran = agent.run("--voirfile", voirfile, write(tmp_path, "script.py", script), "2")
    assert (ran.code, ran.stdout) == (0, "[]\n")
    assert len({hello["pid"] for hello in agent.controls("hello")}) == 1


@needs_torch
def test_every_optimizer_step_is_observed(agent, tmp_path):
    assert run(agent, tmp_path, TRAIN, 'probes.optimizer_step(ov, units="samples/s", items=16)').code == 0
    assert [entry.n for entry in agent.entries()] == [16] * 7


@needs_torch
def test_a_loss_on_the_host_does_not_keep_its_graph(agent, tmp_path):
    script = """
        import gc, weakref, torch, benchmate
        weight = torch.ones(1, requires_grad=True)
        loss = (weight * 2).sum()
        node = weakref.ref(loss)
        benchmate.observe_loss(loss)
        del loss
        gc.collect()
        print(node())
    """
    assert run(agent, tmp_path, script, "pass").stdout == "None\n"
    assert agent.losses() == [2.0]


NESTED = """
    def main():
        for epoch in range(100):
            for step in range(4):
                pass
            left = 3
            while left:
                left -= 1
    if __name__ == "__main__":
        main()
"""


def test_a_for_loop_is_observed_by_its_line(agent, tmp_path):
    probe = 'probes.loop(ov, 4, units="samples/s", batch_size=8)'
    assert run(agent, tmp_path, NESTED, probe).code == 0
    assert [entry.n for entry in agent.entries()] == [8] * 7


@pytest.mark.parametrize("wrapped", ["enumerate(batches)", "enumerate(tqdm(batches))", "tqdm(enumerate(batches))"])
def test_of_a_loop_over_enumerate_and_tqdm_the_batches_are_observed(agent, tmp_path, wrapped):
    script = f"""
        batches, tqdm = [[0.5] * 8 for _ in range(100)], lambda rows: (row for row in rows)
        for index, batch in {wrapped}:
            assert (index, len(batch)) == (index, 8)
    """
    assert run(agent, tmp_path, script, 'probes.loop(ov, 3, units="samples/s", batch_size=len)').code == 0
    assert [entry.n for entry in agent.entries()] == [8] * 7


@needs_torch
def test_of_a_loader_in_two_wrappers_the_size_of_its_batches_is_known(agent, tmp_path):
    # Graphs, of which the first tensor has a row for each node.
    script = """
        import torch
        from torch.utils.data import DataLoader
        tqdm = lambda rows: (row for row in rows)
        for index, batch in enumerate(tqdm(DataLoader(range(3, 103), batch_size=4, collate_fn=lambda n: torch.ones(sum(n))))):
            batch.sum()
    """
    assert run(agent, tmp_path, script, 'probes.loop(ov, 5, units="samples/s")').code == 0
    assert [entry.n for entry in agent.entries()] == [4] * 7


def test_a_while_loop_is_observed_by_its_line_and_what_is_between_two_of_them_is_no_step(agent, tmp_path):
    probe = 'probes.loop(ov, 7, units="steps/s")'
    config = {"measure": {"warmup_steps": 0, "warmup_s": 0, "window_steps": 10_000, "window_s": 0}}
    assert run(agent, tmp_path, NESTED, probe, config=config).code == 0
    assert [entry.n for entry in agent.entries()] == [1] * 300


@pytest.mark.parametrize("left", ["break", "return"])
@pytest.mark.parametrize("has_worked", [False, True])
def test_the_iteration_in_which_a_while_loop_is_left_is_a_step_where_it_has_worked(agent, tmp_path, left, has_worked):
    # On a clock of the test's own: a busy machine may stop a process anywhere.
    work, ask = "now[0] += 4", f"if left == 0: {left}"
    script = f"""
        import time
        from benchmate.probes import patch_probes
        now = [1]
        patch_probes.perf_counter_ns = lambda: now[0]
        def epoch(left):
            while True:
                {ask if not has_worked else work}
                left -= 1
                {work if not has_worked else ask}
        for _ in range(20):
            epoch(3)
            time.sleep(0.02)
    """
    config = {"measure": {"warmup_steps": 0, "warmup_s": 0, "window_steps": 10_000, "window_s": 0}}
    assert run(agent, tmp_path, script, 'probes.loop(ov, 7, units="steps/s")', config=config).code == 0
    entries = agent.entries()
    assert len(entries) == 20 * 3
    assert sum(entry.host_ns < 20_000_000 for entry in entries) > 0.9 * len(entries)  # what is between is in no step


def test_a_line_without_a_loop_fails_and_the_lines_with_one_are_named(agent, tmp_path):
    assert run(agent, tmp_path, NESTED, 'probes.loop(ov, 5, units="steps/s")').code == 1
    (failed,) = agent.controls("fail")
    assert failed["detail"] == "loop at line 5 never fired: line 5 holds no loop. There are loops at 3, 4, 7"


@needs_torch
def test_the_tensor_that_backward_is_called_on_is_the_loss(agent, tmp_path):
    script = """
        import torch
        weight = torch.ones(1, requires_grad=True)
        for step in range(20):
            (weight * (step + 1)).sum().backward()
    """
    probes = 'probes.loop(ov, 4, units="steps/s", batch_size=1)\nprobes.backward(ov)'
    assert run(agent, tmp_path, script, probes).code == 0
    assert agent.losses()[:3] == [1.0, 2.0, 3.0]
