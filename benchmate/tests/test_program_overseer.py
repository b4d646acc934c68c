"""voir takes part from when it is asked for, and as if it had been there from the start."""

from __future__ import annotations

import sys

import pytest
from test_run import run, write

NAMES = ("voir", "giving", "ptera", "reactivex", "dataclasses")
if sys.version_info >= (3, 14):  # whose traceback imports dataclasses itself
    NAMES = NAMES[:-1]
IMPORTED = f"print([name for name in {NAMES} if name in sys.modules])"


def test_without_a_voirfile_a_program_starts_without_voir(agent, tmp_path):
    assert run(agent, tmp_path, f"import sys\n{IMPORTED}").stdout == "[]\n"


def test_a_voirfile_of_phases_and_patches_starts_without_voir(agent, tmp_path):
    voirfile = """
        from benchmate import probes
        def instrument_main(ov):
            yield ov.phases.load_script
            probes.iterable(ov, "__main__.make_loader", units="items/s", batch_size=len)
    """
    script = f"""
        import sys
        def make_loader():
            return [[1, 2]] * 9
        for batch in make_loader():
            if len(batch) == 2 and batch is not None:
                {IMPORTED.replace(", 'dataclasses'", "")}
                break
    """
    ran = run(agent, tmp_path, script, voirfile)
    assert (ran.code, ran.stdout) == (0, "[]\n")


@pytest.mark.parametrize(
    "give",
    [
        "import giving; giving.give(task='train', rate=5.0, units='items/s')",
        "from giving import give; give(task='train', rate=5.0, units='items/s')",
        "import voir.phase, voir; voir.give(task='train', rate=5.0, units='items/s')",
        "import ptera, giving; giving.give(task='train', rate=5.0, units='items/s')",
        "from voir.helpers import current_overseer as ov; ov.get().give(task='train', rate=5.0, units='items/s')",
    ],
)
@pytest.mark.parametrize("script", ["{}", "def f(): pass\n{}", "{}\ndef f(): pass"], ids=["alone", "after", "before"])
def test_what_a_program_gives_is_recorded_wherever_it_imports_voir(agent, tmp_path, give, script):
    ran = run(agent, tmp_path, script.format(give), config={"measure": {"warmup_steps": 0, "warmup_s": 0}})
    assert (ran.code, ran.stderr) == (0, "")
    assert [data["rate"] for data in agent.records() if "rate" in data] == [5.0]
    names = [phase["name"] for phase in agent.records("phase")]
    assert names == ["init", "parse_args", "load_script", "run_script", "finalize"]


def test_what_is_first_imported_in_a_thread_is_said(agent, tmp_path):
    script = """
        import threading
        def work():
            import giving
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    """
    assert run(agent, tmp_path, script).code == 0
    assert [message["message"] for message in agent.records("message")] == [
        "giving was first imported in a thread: the program's values are not recorded. Import it in the main thread"
    ]


def test_what_is_first_imported_in_a_task_is_recorded_there(agent, tmp_path):
    script = """
        import asyncio
        async def work():
            import giving
            giving.give(task="train", loss=2.0)
        asyncio.run(work())
    """
    ran = run(agent, tmp_path, script)
    assert (ran.code, ran.stderr) == (0, "")
    assert [data["loss"] for data in agent.records() if "loss" in data] == [2.0]
    (message,) = [message["message"] for message in agent.records("message")]
    assert message.startswith("voir was first imported in a task: values given outside the task are not recorded")


@pytest.mark.parametrize("name", ["giving", "voir"])
def test_a_module_of_the_program_may_have_the_name_of_one_of_voirs(agent, tmp_path, name):
    write(tmp_path, f"{name}.py", "value = 5")
    ran = run(agent, tmp_path, f"import {name}\nprint({name}.value)")
    assert (ran.code, ran.stdout, ran.stderr) == (0, "5\n", "")
    (message,) = [message["message"] for message in agent.records("message")]
    assert message.startswith(f"{name} was imported, but voir cannot be: ")


def test_streams_that_an_instrument_asks_for_late_are_those_of_the_program(agent, tmp_path):
    voirfile = """
        def instrument_main(ov):
            yield ov.phases.run_script(priority=-1)
            print("ended", ov.status, ov.options.SCRIPT is not None)
        def instrument_losses(ov):
            yield ov.phases.load_script
            ov.given["?loss"].subscribe(print)
    """
    script = "def f(): pass\nfrom giving import give\ngive(loss=3.0)"
    assert run(agent, tmp_path, script, voirfile).stdout == "3.0\nended running True\n"


def test_an_instrument_that_is_required_during_the_program_is_called_at_once(agent, tmp_path):
    script = """
        from voir.helpers import current_overseer
        def late(ov):
            print("called")
            yield ov.phases.load_script
            print("loaded", ov.phases.load_script.done)
            yield ov.phases.run_script
            print("over")
        def f(): pass
        current_overseer.get().require(late)
        print("program")
    """
    assert run(agent, tmp_path, script).stdout == "called\nloaded True\nprogram\nover\n"


def test_the_end_of_the_window_is_the_exception_of_voir_by_whichever_name(agent, tmp_path):
    script = """
        import benchmate
        try:
            for batch in benchmate.observed([0] * 100, batch_size=1):
                pass
        except BaseException as error:
            from voir.phase import StopProgram
            print(type(error) is StopProgram, StopProgram.__name__)
            raise
    """
    ran = run(agent, tmp_path, script)
    assert (ran.code, ran.stdout) == (0, "True StopProgram\n")


def test_an_instrument_can_end_the_program_with_an_error(agent, tmp_path):
    voirfile = """
        def instrument_main(ov):
            yield ov.phases.load_script
            ov.abort(KeyError("no licence"))
    """
    ran = run(agent, tmp_path, "print('ran')\ndef f(): pass\nprint('on')", voirfile)
    assert (ran.code, ran.stdout) == (1, "ran\n")
    assert [error["message"] for error in agent.records("error")] == ["'no licence'"]


def test_an_instrument_can_stop_the_program(agent, tmp_path):
    voirfile = """
        def instrument_main(ov):
            yield ov.phases.load_script
            ov.stop()
        def instrument_other(ov):
            try:
                yield ov.phases.run_script
            finally:
                print(ov.status)
    """
    ran = run(agent, tmp_path, "print('loaded')\ndef f(): pass\nprint('on')", voirfile)
    assert (ran.code, ran.stdout) == (0, "loaded\nstopped\n")


@pytest.mark.parametrize("yielded", ["ov.phases", "'load_script'", "None"])
def test_an_instrument_that_yields_no_phase_fails_the_step(agent, tmp_path, yielded):
    ran = run(agent, tmp_path, "print('on')", f"def instrument_main(ov):\n    yield {yielded}")
    assert (ran.code, ran.stdout) == (1, "")
    assert "expected a phase of ov.phases" in agent.controls("fail")[0]["detail"]


def test_an_unknown_option_is_refused_as_before(agent, tmp_path):
    ran = run(agent, tmp_path, "pass", "def instrument_main(ov): pass")
    assert ran.code == 0
    path = tmp_path / "script.py"
    ran = agent.run("--voirfile", str(tmp_path / "voirfile.py"), "--nonsense", str(path))
    assert ran.code == 2
    assert "unrecognized arguments: --nonsense" in ran.stderr


def test_two_dashes_reach_the_program(agent, tmp_path):
    assert run(agent, tmp_path, "import sys; print(sys.argv[1:])", None, "--", "-x").stdout == "['--', '-x']\n"
