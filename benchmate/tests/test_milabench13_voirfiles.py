"""Voirfiles and programs in the style of milabench 1.3, under our runner, and programs of it that run without one."""

from __future__ import annotations

import itertools

import pytest
from agent import QUICK
from test_run import LOOP, run, write

HEAD = """
from dataclasses import dataclass
from voir import configurable
from voir.phase import StopProgram

@dataclass
class Config:
    dash: bool = False
    interval: str = "1s"
    skip: int = 5
    stop: int = 20
    gpu_poll: float = 1

"""
GIVE = """
import threading, time
from voir.helpers import current_overseer
give = current_overseer.get().give
"""
SUITE = {**QUICK, "voir": {"options": {"stop": 6, "skip": 2, "interval": "1s", "dash": True}}}


def voirfile(body: str) -> str:
    lines = body.strip().splitlines()
    return (
        HEAD + "@configurable\ndef instrument_main(ov, options: Config):\n" + "\n".join(f"    {line}" for line in lines)
    )


MONITORED = """
yield ov.phases.init
from benchmate.monitor import voirfile_monitor
voirfile_monitor(ov, options)
try:
    yield ov.phases.run_script
except StopProgram:
    print("early stopped")
"""
OBSERVED = """
from benchmate.monitor import voirfile_monitor
from benchmate.observer import BenchObserver
yield ov.phases.init
voirfile_monitor(ov, options)
yield ov.phases.load_script
observer = BenchObserver(earlystop=options.stop + options.skip, batch_size_fn=len, raise_stop_program=True)
probe = ov.probe("//make_loader() as loader", overridable=True)
probe["loader"].override(observer.loader)
try:
    yield ov.phases.run_script
except StopProgram:
    print("early stopped")
"""


def test_a_voirfile_with_an_observer_measures_as_the_suite_says(agent, tmp_path):
    ran = run(agent, tmp_path, LOOP, voirfile(OBSERVED), config=SUITE)
    assert (ran.code, ran.stdout, ran.stderr) == (0, "early stopped\n", "")
    assert [(entry.n, entry.flags) for entry in agent.entries()] == [(4, 1)] * 2 + [(4, 0)] * 6
    assert [window["why"] for window in agent.windows()] == ["complete"]
    assert agent.controls("fail") == []


def test_a_criterion_of_a_voirfile_is_observed(agent, tmp_path):
    script = """
        def make_loader():
            return [[1.0, 2.0]] * 50
        def train(loader, criterion):
            for batch in loader:
                criterion(sum(batch))
        if __name__ == "__main__":
            train(make_loader(), lambda x: x / 2)
    """
    text = voirfile(OBSERVED).replace(
        "    try:\n",
        '    ov.probe("//train > criterion", overridable=True)["criterion"].override(observer.criterion)\n    try:\n',
    )
    assert run(agent, tmp_path, script, text, config=SUITE).code == 0
    assert agent.losses() == [1.5] * 8


def test_a_returned_value_is_overridden(agent, tmp_path):
    script = "import json\nprint(json.dumps({}), json.dumps([1]))"
    text = """
        import json
        from benchmate.observer import BenchObserver
        def instrument_main(ov):
            yield ov.phases.load_script
            BenchObserver().override_return_value(json.dumps, lambda text: text * 2)
    """
    ran = run(agent, tmp_path, script, text)
    assert (ran.code, ran.stdout) == (0, "{}{} [1][1]\n")


RATES = """
from giving import give
for rate in range(1, 100):
    give(rate=float(rate), units="Tok/s", task="train")
print("reached the end")
"""


@pytest.mark.parametrize("body", [None, MONITORED])
def test_rates_that_a_program_gives_are_recorded_and_end_it(agent, tmp_path, body):
    ran = run(agent, tmp_path, RATES, body and voirfile(body), config=SUITE)
    assert (ran.code, ran.stdout) == (0, "early stopped\n" if body else "")
    rates = [data for data in agent.records() if "rate" in data]
    assert [(data["rate"], data["units"], data["clock"]) for data in rates] == [
        (float(rate), "Tok/s", "program") for rate in range(1, 9)
    ]
    assert [data.get("warmup", False) for data in rates] == [True] * 2 + [False] * 6
    assert [window["why"] for window in agent.windows()] == ["complete"]
    assert agent.records("stop") == [{"reason": "train: 6 rates"}]


def test_rates_derived_by_a_stream_of_the_program_are_recorded(agent, tmp_path):
    script = """
        from giving import give, given
        if __name__ == "__main__":
            with given() as gv:
                gv["?sps"].map(lambda sps: {"task": "train", "rate": sps, "units": "steps/s"}).give()
                gv["?reward"].map(lambda reward: -reward).as_("loss").give()
                for step in range(5):
                    give(sps=100.0 + step, reward=float(step))
    """
    assert run(agent, tmp_path, script, voirfile(MONITORED), config=SUITE).code == 0
    assert [data["rate"] for data in agent.records() if "rate" in data] == [100.0, 101.0, 102.0, 103.0, 104.0]
    assert [data["loss"] for data in agent.records() if "loss" in data] == [0.0, -1.0, -2.0, -3.0, -4.0]
    assert [window["why"] for window in agent.windows()] == ["ended"]


def test_the_instruments_of_voir_measure_and_stop(agent, tmp_path):
    script = """
        import voir
        from giving import give
        for number, [[x]] in enumerate(voir.iterate("train", [[[i]] for i in range(1, 1000)], True)):
            give(loss=1 / x)
        print("reached the end")
    """
    text = voirfile("""
yield ov.phases.init
from voir.instruments import dash, early_stop, gpu_monitor, log, rate
from benchmate.monitor import log_patterns
ov.require(
    log(*log_patterns(), context="task"),
    rate(interval=2, skip=1, sync=None),
    early_stop(n=3, key="rate", task="train", signal="stop"),
    gpu_monitor(poll_interval=0.001),
)
""")
    ran = run(agent, tmp_path, script, text, config={**QUICK, "voir": {}})
    assert (ran.code, ran.stdout) == (0, "")
    # What the profile asks for, not what the instrument does: two of warm-up, and five.
    assert len([data for data in agent.records() if "rate" in data]) == 7
    assert any("left to the measuring profile" in data["message"] for data in agent.records("message"))
    assert not any("gpudata" in data for data in agent.records())
    assert next(data["loss"] for data in agent.records() if "loss" in data) == 1.0


@pytest.mark.parametrize("signal", ["'stop'", "StopProgram"])
def test_an_early_stop_ends_what_is_not_measured(agent, tmp_path, signal):
    script = (
        "from giving import give\nfor x in range(100):\n    give(loss=float(x), task='train')\nprint('reached the end')"
    )
    text = voirfile(f"""
yield ov.phases.init
from voir.instruments import early_stop, log
ov.require(log("loss", context="task"), early_stop(n=3, key="loss", task="train", signal={signal}))
""")
    ran = run(agent, tmp_path, script, text)
    assert (ran.code, ran.stdout, ran.stderr) == (0, "", "")
    assert [data["loss"] for data in agent.records() if "loss" in data][:3] == [0.0, 1.0, 2.0]
    assert agent.controls("fail") == []


def test_probes_of_a_voirfile_feed_streams(agent, tmp_path):
    script = """
        def run(batches):
            for inputBatch in batches:
                L = sum(inputBatch) / 2
        if __name__ == "__main__":
            run([[1, 2, 3]] * 4)
    """
    text = voirfile("""
yield ov.phases.init
from benchmate.monitor import voirfile_monitor
voirfile_monitor(ov, options)
yield ov.phases.load_script
ov.probe("//run > L").throttle(1)["L"].map(float).give("loss")
seen = ov.given.where(task="train").where("batch").accum()
ov.probe(
    "//run(inputBatch as batch, !#loop_inputBatch as step, !!#endloop_inputBatch as step_end)"
).augment(task=lambda: "train").give()
yield ov.phases.run_script
print(len(seen))
""")
    ran = run(agent, tmp_path, script, text)
    assert (ran.code, ran.stderr) == (0, "")
    assert int(ran.stdout) >= 4
    assert [data["loss"] for data in agent.records() if "loss" in data] == [3.0]


@pytest.mark.parametrize(
    "wait",
    [
        "while thread.is_alive(): time.sleep(0.01)",  # Python sees the exception soon
        "thread.join()",  # only the other thread can end the process
    ],
)
def test_rates_of_another_thread_are_taken_at_once(agent, tmp_path, wait):
    body = """
def measure():
    for rate in range(1, 100000):
        give(rate=float(rate), task="train")
        time.sleep(0.02)
thread = threading.Thread(target=measure, daemon=True)
thread.start()
"""
    script = f"{GIVE}{body}{wait}\nprint('reached the end')"
    ran = run(agent, tmp_path, script, voirfile(MONITORED), config=SUITE)
    assert ran.code == 0
    assert "reached the end" not in ran.stdout
    rates = [data for data in agent.records() if "rate" in data]
    assert [data["rate"] for data in rates] == [float(rate) for rate in range(1, 9)]
    times = [data["time"] for data in rates]
    assert min(later - earlier for earlier, later in itertools.pairwise(times)) > 0.01


def test_monitors_of_a_voirfile_start_no_thread(agent, tmp_path):
    text = voirfile("""
from benchmate.monitor import (
    monitor_monogpu, monitor_node, monitor_process_monogpu, multigpu_monitor, get_rank, voirfile_monitor
)
from voir.instruments import gpu_monitor, monitor_all
yield ov.phases.load_script
ov.require(
    monitor_monogpu(poll_interval=0.001), multigpu_monitor(poll_interval=0.001), monitor_node(poll_interval=0.001),
    monitor_process_monogpu(), gpu_monitor(poll_interval=0.001), monitor_all(poll_interval=0.001),
)
print(get_rank())
""")
    ran = run(agent, tmp_path, "import threading\nprint(threading.active_count())", text)
    assert (ran.code, ran.stdout, ran.stderr) == (0, "-1\n1\n", "")


def test_the_logs_of_monitors_record_without_the_runner(agent, tmp_path):
    script = """
        from benchmate.monitor import bench_monitor, milabench_sys_monitor, setupvoir
        log, monitor = setupvoir(interval=0.1)
        for rate in range(1, 11):
            log({"task": "train", "rate": float(rate), "units": "Tflops", "time": rate})
        monitor.stop()
        with bench_monitor() as log:
            log({"task": "train", "loss": 2.5})
            log({"task": "train", "memory_peak": 7, "units": "MiB"})
        milabench_sys_monitor()
        print("done")
    """
    ran = agent.run(write(tmp_path, "script.py", script), module="")
    assert (ran.code, ran.stdout, ran.stderr) == (0, "done\n", "")
    rates = [data for data in agent.records() if "rate" in data]
    assert [data["rate"] for data in rates] == [float(rate) for rate in range(1, 11)]
    assert [bool(data.get("warmup")) for data in rates] == [True] * 2 + [False] * 8
    assert agent.losses() == [2.5]
    assert agent.metrics()["memory_peak"] == 7


def test_a_script_of_its_own_prints_what_it_measured(tmp_path, agent):
    script = """
        from benchmate.observer import BenchObserver
        for batch in BenchObserver(earlystop=4, stdout=True).loader([[0] * 3] * 10):
            pass
    """
    ran = agent.run(write(tmp_path, "script.py", script), module="", config={}, env={"MILABENCH_SINK": ""})
    assert (ran.code, ran.stdout) == (0, "")
    assert ran.stderr.splitlines()[1].split()[:3] == ["train", "2", "2"]


# torchcompat

CORE = "def set_device(number): return number\ndef memory_reserved(): return 5\n"


@pytest.mark.parametrize(
    "script",
    [
        "import benchmate.observer\nimport torchcompat.core as acc",
        "import torchcompat.core as acc\nfrom benchmate.monitor import setupvoir",
    ],
)
def test_what_torchcompat_lacks_is_supplied_where_it_is_absent(agent, tmp_path, script):
    (tmp_path / "torchcompat").mkdir()
    write(tmp_path, "torchcompat/__init__.py", "")
    write(tmp_path, "torchcompat/core.py", CORE)
    write(tmp_path, "torch.py", "def manual_seed(seed):\n    return ('seeded', seed)\n")
    text = f"{script}\nprint(acc.max_memory_allocated(), acc.memory_reserved(), acc.manual_seed(3))"
    ran = agent.run(write(tmp_path, "script.py", text), module="")
    assert (ran.code, ran.stdout, ran.stderr) == (0, "0 5 ('seeded', 3)\n", "")


def test_what_programs_ask_of_torchcompat_is_there(agent, tmp_path):
    pytest.importorskip("torchcompat", reason="torchcompat is not installed")
    script = """
        import benchmate.observer
        import torch
        import torchcompat.core as acc
        acc.manual_seed(7)
        first = torch.rand(2).tolist()
        torch.manual_seed(7)
        print(first == torch.rand(2).tolist(), acc.max_memory_allocated() >= 0)
        names = "Event fetch_device device_count device_type set_device synchronize empty_cache mark_step optimize ccl "
        names += "set_enable_tf32 init_process_group destroy_process_group accelerate manual_seed max_memory_allocated"
        print([name for name in names.split() if not hasattr(acc, name)])
        acc.amp.autocast, acc.amp.GradScaler
    """
    ran = agent.run(write(tmp_path, "script.py", script), module="")
    assert (ran.code, ran.stdout) == (0, "True True\n[]\n")
