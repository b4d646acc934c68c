"""The runner, as a real child process with an agent at the other end."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from agent import QUICK, Agent

LOOP = """
import sys

def make_loader():
    return [[1, 2, 3, 4]] * 1000

def train(loader):
    for batch in loader:
        pass

if __name__ == "__main__":
    train(make_loader())
    print("reached the end")
"""
LOADER_PROBE = """
from benchmate import probes

def instrument_main(ov):
    probes.loader(ov, "//make_loader() as loader", units="items/s", batch_size=len)
"""


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return str(path)


def run(agent: Agent, tmp_path: Path, script: str, voirfile: str | None = None, *arguments: str, **more):
    options = ["--voirfile", write(tmp_path, "voirfile.py", voirfile)] if voirfile else []
    return agent.run(*options, write(tmp_path, "script.py", script), *arguments, **more)


def test_a_probed_loader_is_measured_and_ends_the_program(agent, tmp_path):
    ran = run(agent, tmp_path, LOOP, LOADER_PROBE)
    assert (ran.code, ran.stdout, ran.stderr) == (0, "", "")
    entries = agent.entries()
    assert [(entry.batch_id, entry.n, entry.steps, entry.flags) for entry in entries] == [
        *[(i, 4, 1, 1) for i in range(2)],
        *[(i, 4, 1, 0) for i in range(2, 7)],
    ]
    assert [window["why"] for window in agent.windows()] == ["complete"]
    assert {"task": "train", "progress": [5, 5]} in agent.records()
    assert agent.records("stop") == [{"reason": "train: 5 observations"}]
    assert agent.controls("fail") == []
    assert agent.malformed == []


def test_the_first_line_identifies_the_process_and_phases_follow(agent, tmp_path):
    run(agent, tmp_path, "print(1)", env={"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"})
    (hello,) = agent.controls("hello")
    assert agent.lines[0] == {"hello": hello}
    assert {key: hello[key] for key in ("role", "rank", "local_rank", "world_size")} == {
        "role": "rank",
        "rank": 1,
        "local_rank": 1,
        "world_size": 2,
    }
    names = [phase["name"] for phase in agent.records("phase")]
    assert names == ["init", "parse_args", "load_script", "run_script", "finalize"]


def test_observations_are_contiguous_and_fill_the_window(agent, tmp_path):
    run(agent, tmp_path, LOOP, LOADER_PROBE)
    (window,) = agent.windows()
    measured = [entry for entry in agent.entries() if not entry.flags & 1]
    assert measured[-1].t0_ns + measured[-1].host_ns == window["stop_ns"]
    assert measured[0].t0_ns >= window["start_ns"]
    assert all(a.t0_ns + a.host_ns <= b.t0_ns for a, b in itertools.pairwise(measured))
    assert window["stop"] - window["start"] == pytest.approx((window["stop_ns"] - window["start_ns"]) / 1e9, abs=1e-6)


def test_the_first_step_and_the_memory_are_metrics_of_their_own(agent, tmp_path):
    run(agent, tmp_path, LOOP, LOADER_PROBE)
    metrics = agent.metrics()
    assert 0 < metrics["first_step"] < 120
    assert metrics["host_memory_peak"] > 2**20


def test_stop_and_skip_of_the_suite_override_the_profile(agent, tmp_path):
    config = {**QUICK, "voir": {"options": {"stop": 11, "skip": 4, "interval": "1s"}}}
    config["measure"] = {**QUICK["measure"], "warmup_s": 3600}
    run(agent, tmp_path, LOOP, LOADER_PROBE, config=config)
    assert [entry.flags for entry in agent.entries()] == [1] * 4 + [0] * 11


def test_a_script_without_instruments_runs_as_under_python(agent, tmp_path):
    script = """
        from __future__ import annotations
        "doc"
        import os, sys
        import sibling
        def f(): pass
        x: Undefined = 3
        print(sys.argv, sibling.value, __name__, os.path.basename(__file__), __spec__, sys.modules["__main__"].f is f)
        sys.exit(7)
    """
    write(tmp_path, "sibling.py", "value = 5")
    path = write(tmp_path, "script.py", script)
    plain = subprocess.run([sys.executable, path, "-a", "--config"], capture_output=True, text=True, check=False)
    ran = agent.run(path, "-a", "--config")
    assert (ran.code, ran.stdout) == (plain.returncode, plain.stdout) == (7, ran.stdout)
    assert agent.records("error") == []


def test_a_module_is_found_and_named_as_python_dash_m_does(agent, tmp_path):
    package = tmp_path / "pkg"
    package.mkdir()
    write(package, "__init__.py", "")
    write(package, "near.py", "value = 6")
    write(
        package,
        "prog.py",
        "from .near import value\nimport sys\ndef f(): pass\nprint(value, __package__, __spec__.name, sys.argv)",
    )
    plain = subprocess.run(
        [sys.executable, "-m", "pkg.prog", "x"], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    ran = agent.run("--path", str(tmp_path), "-m", "pkg.prog", "x")
    assert (ran.code, ran.stdout) == (0, plain.stdout)


@pytest.mark.parametrize(
    "body", ["boom()", "def f():\n    1/0\nf()", "import nothing_like_this", "def f(:", "raise SystemExit('why')"]
)
def test_what_a_script_raises_is_shown_as_python_shows_it(agent, tmp_path, body):
    path = write(tmp_path, "script.py", body)
    plain = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    ran = agent.run(path)
    assert (ran.code, ran.stderr) == (plain.returncode, plain.stderr)
    assert len(agent.records("error")) == (0 if "SystemExit" in body else 1)


@pytest.mark.parametrize(("code", "expected"), [("0", 0), ("None", 0), ("3", 3)])
def test_sys_exit_is_not_an_error(agent, tmp_path, code, expected):
    assert run(agent, tmp_path, f"import sys; sys.exit({code})").code == expected
    assert agent.records("error") == []


def test_an_interrupt_exits_with_130(agent, tmp_path):
    ran = run(agent, tmp_path, "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)")
    assert ran.code == 130
    assert [error["type"] for error in agent.records("error")] == ["KeyboardInterrupt"]


def test_a_missing_script_or_module_is_an_error_of_one_line(agent, tmp_path):
    ran = agent.run(str(tmp_path / "nope.py"))
    assert (ran.code, ran.stderr) == (2, f"benchmate.run: {tmp_path / 'nope.py'}: no such script\n")


def test_a_silent_probe_fails_the_step_and_suggests_similar_names(agent, tmp_path):
    voirfile = """
        from benchmate import probes
        def instrument_main(ov):
            probes.iterable(ov, "__main__.make_loadr", units="items/s")
            probes.calls(ov, "json.dumps", units="calls/s")
            probes.patch(ov, "not_imported.thing", lambda original: original)
            probes.result(ov, "json.loads", print, required=False)
    """
    ran = run(agent, tmp_path, "import json\ndef make_loader(): pass\n", voirfile)
    details = [fail["detail"] for fail in agent.controls("fail")]
    assert ran.code == 1
    assert {fail["why"] for fail in agent.controls("fail")} == {"probe"}
    assert any("Did you mean 'make_loader'?" in detail for detail in details)
    assert "calls of json.dumps never fired: it was never called" in details
    assert any("no module not_imported was ever imported" in detail for detail in details)
    assert [message["message"] for message in agent.records("message")] == [
        "result of json.loads never fired: it was never called"
    ]


@pytest.mark.parametrize(
    ("voirfile", "words"),
    [
        ("def instrument_main(ov):\n    raise KeyError('ouch')", "KeyError: 'ouch'"),
        (
            "def instrument_main(ov):\n    yield ov.phases.load_script\n    ov.probe('//nope() as x')",
            "has no function 'nope'",
        ),
        ("import not_there\n", "No module named 'not_there'"),
        (
            "from benchmate import probes\ndef instrument_main(ov):\n    probes.loss(ov, '//train > los')",
            "Did you mean 'loss'?",
        ),
        (
            "def instrument_main(ov):\n    ov.probe('//train() as x')",
            "`yield ov.phases.load_script` first",
        ),
    ],
)
def test_a_broken_instrument_fails_the_step_before_the_program_runs(agent, tmp_path, voirfile, words):
    script = "def train():\n    loss = 1\n    return loss\nprint('ran', train())"
    ran = run(agent, tmp_path, script, voirfile)
    assert ran.code == 1
    assert ran.stdout == ""
    (fail,) = agent.controls("fail")
    assert fail["why"] == "probe"
    assert words in fail["detail"]
    assert words in ran.stderr
    assert len(agent.records("error")) == 1


def test_an_error_in_a_subscriber_fails_the_step_but_not_the_script(agent, tmp_path):
    voirfile = """
        def instrument_main(ov):
            yield ov.phases.load_script
            ov.probe("//train > loss")["loss"].subscribe(lambda loss: 1 / 0)
    """
    ran = run(agent, tmp_path, "def train():\n    loss = 1\n    return loss\nprint('got', train())", voirfile)
    assert ran.stdout == "got 1\n"
    assert ran.code == 1
    assert "ZeroDivisionError" in agent.controls("fail")[0]["detail"]


def test_a_batch_of_unknown_size_fails_the_step_with_a_hint(agent, tmp_path):
    voirfile = LOADER_PROBE.replace(", batch_size=len", "")
    assert run(agent, tmp_path, LOOP, voirfile).code == 1
    (fail,) = agent.controls("fail")
    assert "batch_size=" in fail["detail"]


def test_the_example_of_the_reference_works_as_shown(agent, tmp_path):
    voirfile = """
        from benchmate import observed

        class Wrapper:
            def __init__(self, loader):
                self.loader = loader
            def __iter__(self):
                return iter(observed(self.loader, batch_size=4))

        def wrapper(loader):
            print("received loader obj")
            return Wrapper(loader)

        def instrument_loader(ov):
            yield ov.phases.load_script
            probe = ov.probe("//dataloader() as loader", overridable=True)
            probe['loader'].override(wrapper)
    """
    ran = run(agent, tmp_path, LOOP.replace("make_loader", "dataloader"), voirfile)
    assert (ran.code, ran.stdout) == (0, "received loader obj\n")
    assert len(agent.entries()) == 7


def test_a_class_of_a_voirfile_can_be_pickled(agent, tmp_path):
    voirfile = (
        "import pickle\nclass W: pass\ndef instrument_main(ov):\n    print(type(pickle.loads(pickle.dumps(W()))) is W)"
    )
    assert run(agent, tmp_path, "pass", voirfile).stdout == "True\n"


def test_an_overridden_object_is_freed(agent, tmp_path):
    voirfile = """
        from benchmate import probes
        def instrument_main(ov):
            probes.replace(ov, "//make() as model", lambda model: model)
    """
    script = """
        import gc, weakref
        class Model: pass
        def make():
            return Model()
        model = make()
        seen = weakref.ref(model)
        del model
        gc.collect()
        print(seen())
    """
    assert run(agent, tmp_path, script, voirfile).stdout == "None\n"


def test_without_selectors_neither_ptera_nor_codefind_is_imported(agent, tmp_path):
    script = "import sys\nprint([m for m in ('ptera', 'codefind', 'omegaconf', 'torch', 'numpy') if m in sys.modules])"
    assert run(agent, tmp_path, script, "def instrument_main(ov): pass").stdout == "[]\n"


def test_a_selector_does_not_import_codefind(agent, tmp_path):
    script = LOOP.replace('print("reached the end")', "").replace("pass", "print('codefind' in sys.modules); break")
    assert run(agent, tmp_path, script, LOADER_PROBE).stdout == "False\n"


def test_a_swallowed_stop_is_raised_again(agent, tmp_path):
    script = """
        def make_loader():
            return [[1]] * 100
        if __name__ == "__main__":
            swallowed = 0
            loader = make_loader()
            while swallowed < 3:
                try:
                    for batch in loader:
                        pass
                except BaseException:
                    swallowed += 1
            print("swallowed", swallowed)
            for batch in loader:
                pass
            print("never")
    """
    ran = run(agent, tmp_path, script, LOADER_PROBE)
    assert (ran.code, ran.stdout) == (0, "swallowed 3\n")
    assert len(agent.windows()) == len(agent.records("stop")) == 1


def test_a_script_that_always_swallows_the_stop_is_terminated(agent, tmp_path):
    script = """
        def make_loader():
            return [[1]] * 100
        loader = make_loader()
        while True:
            try:
                for batch in loader: pass
            except BaseException: pass
    """
    assert run(agent, tmp_path, script, LOADER_PROBE).code == 0
    assert len(agent.windows()) == 1


def test_a_loop_in_a_thread_ends_the_program_too(agent, tmp_path):
    script = """
        import threading, time
        def make_loader():
            return [[1]] * 100
        def work(loader):
            for batch in loader: pass
        loader = make_loader()
        thread = threading.Thread(target=work, args=(loader,))
        thread.start()
        while True:
            time.sleep(0.01)
    """
    assert run(agent, tmp_path, script, LOADER_PROBE).code == 0
    assert agent.records("stop")


THREADS = {
    "joined": "thread = threading.Thread(target=work)\nthread.start()\nthread.join()",
    "left to Python": "threading.Thread(target=work).start()",
    "waited for": "threading.Thread(target=work).start()\nwhile True: time.sleep(0.001)",
    "many": "for _ in range(4): threading.Thread(target=work).start()\nfor thread in threading.enumerate()[1:]: thread.join()",
    "an executor": "with futures.ThreadPoolExecutor(2) as pool: list(pool.map(lambda _: work(), range(2)))",
    "an executor that is left open": "pool = futures.ThreadPoolExecutor(2)\npool.submit(work)",
    "beside threads that begin": "threading.Thread(target=work).start()\nwhile True: threading.Thread(target=int).start()",
}


@pytest.mark.slow
@pytest.mark.parametrize("how", THREADS)
def test_steps_in_any_thread_end_the_program_with_whole_records(agent, tmp_path, how):
    """The threads go on after the window; nothing may interrupt the end of the session."""
    script = """
import sys, threading, time
from concurrent import futures
sys.setswitchinterval(1e-5)
def step(): time.sleep(0.0002)
def work():
    for _ in range(2000): step()
"""
    voirfile = """
from benchmate import probes

def instrument_main(ov):
    probes.calls(ov, "__main__.step", units="items/s", items=1)
"""
    ran = run(agent, tmp_path, script + THREADS[how], voirfile)
    assert (ran.code, ran.stderr) == (0, "")
    assert len(agent.windows()) == 1
    assert [record for record in agent.records() if "overhead" in record]
    assert [record for record in agent.records() if record.get("metric") == "host_memory_peak"]
    assert agent.records("error") == agent.controls("fail") == []


def test_threads_of_the_program_do_not_keep_a_stopped_process_alive(agent, tmp_path, monkeypatch):
    script = LOOP.replace(
        "train(make_loader())",
        "import threading; threading.Thread(target=threading.Event().wait).start(); train(make_loader())",
    )
    assert run(agent, tmp_path, script, LOADER_PROBE).code == 0


@pytest.mark.parametrize("end", ["os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_observations_survive_a_sudden_end(agent, tmp_path, end):
    script = f"""
        import os, signal
        def make_loader():
            return [[1, 2]] * 1000
        for index, batch in enumerate(make_loader()):
            if index == 4:
                {end}
    """
    run(agent, tmp_path, script, LOADER_PROBE)
    assert [entry.batch_id for entry in agent.entries()] == [0, 1, 2, 3]


def test_a_script_that_closes_all_descriptors_is_still_recorded(agent, tmp_path):
    script = """
        import os
        def make_loader():
            return [[1, 2]] * 1000
        os.closerange(3, 256)
        mine = [open(f"own{i}", "w+") for i in range(8)]
        try:
            for batch in make_loader(): pass
        finally:
            print([(file.flush(), file.seek(0), file.read())[2] for file in mine])
    """
    ran = run(agent, tmp_path, script, LOADER_PROBE)
    assert (ran.code, ran.stdout) == (0, "['', '', '', '', '', '', '', '']\n")
    assert len(agent.entries()) == 7
    assert len(agent.windows()) == 1
    assert len(agent.controls("hello")) == 2


def test_a_forked_child_records_for_itself_only(agent, tmp_path):
    script = """
        import os, sys
        import benchmate
        def make_loader():
            return [[1, 2]] * 1000
        if os.fork() == 0:
            for batch in benchmate.observed([[1]] * 50, batch_size=1, task="validation"): pass
            sys.exit(0)
        os.wait()
        for batch in make_loader(): pass
    """
    assert run(agent, tmp_path, script, LOADER_PROBE).code == 0
    assert len({hello["pid"] for hello in agent.controls("hello")}) == 2
    assert [phase["name"] for phase in agent.records("phase")].count("finalize") == 1
    assert len(agent.entries("validation")) == 50
    assert len(agent.entries("train")) == 7


@pytest.mark.parametrize(
    "start", ["subprocess.Popen([sys.executable, '-c', child])", "context.Process(target=exec, args=(child,)).start()"]
)
def test_a_child_that_a_measuring_program_starts_observes_nothing(agent, tmp_path, start):
    script = f"""
        import multiprocessing, subprocess, sys
        context = multiprocessing.get_context("spawn")
        child = "import benchmate; list(benchmate.observed([[1]] * 50, batch_size=1)); open('done', 'w').close()"
        def make_loader():
            return [[1, 2]] * 1000
        if __name__ == "__main__":
            for index, batch in enumerate(make_loader()):
                if index == 2:
                    other = {start}
                    import os, time
                    while not os.path.exists("done"): time.sleep(0.01)
    """
    run(agent, tmp_path, script, LOADER_PROBE, cwd=tmp_path)
    assert [entry.batch_id for entry in agent.entries()] == list(range(7))
    assert len(agent.controls("hello")) == 1


def test_a_running_loop_continues_unrecorded_in_a_forked_child(agent, tmp_path):
    script = """
        import os
        def make_loader():
            return [[1, 2]] * 1000
        for index, batch in enumerate(make_loader()):
            if index == 3 and os.fork() == 0:
                continue
            if index == 20:
                os._exit(0)
    """
    run(agent, tmp_path, script, LOADER_PROBE)
    assert [entry.batch_id for entry in agent.entries()] == list(range(7))


def test_a_dead_agent_does_not_break_the_script(agent, tmp_path):
    agent.close()
    ran = run(agent, tmp_path, LOOP, LOADER_PROBE)
    assert ran.code == 0
    assert ran.stderr.count("\n") <= 1


def test_an_agent_that_dies_does_not_break_the_script(agent, tmp_path):
    script = LOOP.replace(
        "train(make_loader())", f"import os; os.unlink({str(agent.path)!r}); os.closerange(3, 99); train(make_loader())"
    )
    assert run(agent, tmp_path, script, LOADER_PROBE).code == 0


def test_replaced_standard_streams_do_not_affect_the_records(agent, tmp_path):
    script = LOOP.replace("import sys", "import sys, io\nsys.stdout = sys.stderr = io.StringIO()")
    assert run(agent, tmp_path, script, LOADER_PROBE).code == 0
    assert len(agent.entries()) == 7


def test_a_pipe_carries_voirs_own_protocol(tmp_path):
    import json

    read, write_end = os.pipe()
    script = write(tmp_path, "script.py", LOOP)
    config = write(tmp_path, "config.json", json.dumps(QUICK))
    voirfile = write(tmp_path, "voirfile.py", LOADER_PROBE)
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmate.run", "--config", config, "--voirfile", voirfile, script],
        env={**os.environ, "DATA_FD": str(write_end)},
        pass_fds=[write_end],
    )
    os.close(write_end)
    with os.fdopen(read) as file:
        lines = [json.loads(line) for line in file]
    assert process.wait() == 0
    assert {"$event": "phase", "$data": {"name": "init"}} in lines
    assert len([line for line in lines if "rate" in line]) == 7


def test_without_a_sink_there_is_a_table_on_stderr(tmp_path):
    script = write(tmp_path, "script.py", LOOP)
    voirfile = write(tmp_path, "voirfile.py", LOADER_PROBE)
    command = [sys.executable, "-m", "benchmate.run", "--voirfile", voirfile, script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "train" in done.stderr
    assert "ended during warm-up" in done.stderr


def test_a_terminated_program_dies_of_the_signal(agent, tmp_path):
    ran = run(agent, tmp_path, "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)")
    assert ran.code == -signal.SIGTERM


def test_configurable_instruments_get_the_suites_options(agent, tmp_path):
    voirfile = """
        from dataclasses import dataclass
        from voir import configurable

        @dataclass
        class Options:
            # stop after
            stop: int = 20
            # not given
            other: str = "x"

        @configurable
        def instrument_main(ov, options: Options):
            print(options.stop, options.other)
            yield ov.phases.init
    """
    ran = run(agent, tmp_path, "pass", voirfile, config={"voir": {"options": {"stop": 60, "interval": "1s"}}})
    assert (ran.code, ran.stdout) == (0, "60 x\n")


def test_instrument_options_and_records_of_voir_pass_through(agent, tmp_path):
    voirfile = """
        from voir.tools import gated
        @gated("--trace")
        def instrument_trace(ov):
            ov.log({"task": "main", "traced": float("nan")})
    """
    path = write(tmp_path, "script.py", "import voir\nvoir.log(task='train', loss=1.5)")
    ran = agent.run("--voirfile", write(tmp_path, "voirfile.py", voirfile), "--trace", path)
    assert ran.code == 0
    assert {"task": "main", "traced": None, "nonfinite": ["traced"]} in agent.records()
    assert {"task": "train", "loss": 1.5} in agent.records()
