"""Bad input: the run ends with the right outcome, and with every record so far."""

from __future__ import annotations

import pytest
from test_probes import needs_torch, run
from test_run import LOADER_PROBE, LOOP
from test_run import run as run_voirfile

ITERABLE = 'probes.iterable(ov, "__main__.batches", units="items/s", batch_size=len)'
SCRIPT = """
    import os, signal, sys, threading
    def batches():
        for index in range(1000):
            BEFORE
            yield [index] * 3
    def main():
        for step, batch in enumerate(batches()):
            INSIDE
    if __name__ == "__main__":
        main()
"""


def script(*, before: str = "pass", inside: str = "pass") -> str:
    return SCRIPT.replace("BEFORE", before).replace("INSIDE", inside)


def whys(agent) -> list[str]:
    return [fail["why"] for fail in agent.controls("fail")]


def test_an_empty_loader_is_reported_and_leaves_no_observation(agent, tmp_path):
    ran = run(agent, tmp_path, script().replace("range(1000)", "()"), ITERABLE)
    assert ran.code == 0  # that there is no data is the agent's to say, who knows whether there had to be some
    assert agent.entries() == []
    assert {"message": "train: a loader yielded nothing"} in agent.records("message")


def test_a_batch_of_unknown_size_ends_the_program_with_a_hint(agent, tmp_path):
    ran = run(agent, tmp_path, script(), ITERABLE.replace(", batch_size=len", ""))
    assert (ran.code, whys(agent)) == (1, ["probe"])
    assert (
        "batch_size=: a number, a key of the batch, or a function of the batch" in agent.controls("fail")[0]["detail"]
    )
    assert len(agent.entries()) <= 1


@pytest.mark.parametrize("value", ["float('nan')", "float('-inf')"])
def test_a_nonfinite_loss_fails_the_step_as_invalid_and_keeps_its_records(agent, tmp_path, value):
    inside = f"benchmate.observe_loss({value} if step == 5 else 1.0)"
    ran = run(agent, tmp_path, "import benchmate\n" + script(inside=inside).replace("\n    ", "\n"), ITERABLE)
    assert (ran.code, whys(agent)) == (1, ["invalid"])
    assert len(agent.entries()) == 7


ENDS = {
    "os._exit": ("os._exit(7)", 7),
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", -9),
    "terminated": ("os.kill(os.getpid(), signal.SIGTERM)", -15),
    "aborted": ("os.abort()", -6),
    "sys.exit": ("sys.exit(3)", 3),
    "raised": ("raise KeyError('mine')", 1),
}


@pytest.mark.parametrize("name", sorted(ENDS))
def test_steps_are_recorded_however_the_script_ends(agent, tmp_path, name):
    end, code = ENDS[name]
    ran = run(agent, tmp_path, script(inside=f"if step == 4: {end}"), ITERABLE)
    assert ran.code == code
    # The step that an exception ends may have done all its work.
    assert [entry.batch_id for entry in agent.entries()][:4] == [0, 1, 2, 3]
    assert agent.malformed == []


def test_an_exception_without_a_text_is_shown_and_recorded(agent, tmp_path):
    raised = "raise type('Odd', (Exception,), {'__str__': lambda self: 5})()"
    ran = run(agent, tmp_path, script(inside=raised), ITERABLE)
    assert (ran.code, ran.stderr.splitlines()[-1]) == (1, "Odd: <exception str() failed>")
    (error,) = agent.records("error")
    assert (error["type"], error["message"]) == ("Odd", "<Odd: TypeError instead of a text>")


def test_a_loader_that_raises_keeps_the_step_before(agent, tmp_path):
    ran = run(agent, tmp_path, script(before="if index == 5: raise OSError('disk')"), ITERABLE)
    assert ran.code == 1
    assert [entry.batch_id for entry in agent.entries()] == [0, 1, 2, 3, 4]
    assert [(error["type"], error["message"]) for error in agent.records("error")] == [("OSError", "disk")]
    assert [window["why"] for window in agent.windows()] == ["ended"]


@pytest.mark.parametrize("child", ["os._exit(0)", "sys.exit(0)", "raise KeyError('child')"])
def test_a_script_that_forks_is_recorded_once(agent, tmp_path, child):
    inside = f"\n            if step == 3 and os.fork() == 0:\n                {child}"
    ran = run(agent, tmp_path, script(inside=inside), ITERABLE)
    assert ran.code == 0
    assert [entry.batch_id for entry in agent.entries()] == list(range(7))
    assert [phase["name"] for phase in agent.records("phase")].count("finalize") == 1
    assert len(agent.windows()) == 1


def test_a_forked_child_that_loops_too_is_not_recorded(agent, tmp_path):
    child = "for _ in make_loader(): pass\n                os._exit(0)"
    inside = (
        f"\n            if step == 3 and os.fork() == 0:\n                {child}\n            if step == 4: os.wait()"
    )
    ran = run(agent, tmp_path, script(inside=inside), ITERABLE)
    assert ran.code == 0
    assert [entry.batch_id for entry in agent.entries()] == list(range(7))
    assert len(agent.controls("hello")) == 1


def test_a_script_that_forks_while_it_loads_is_recorded_once(agent, tmp_path):
    before = "\n            if index == 3 and os.fork() == 0:\n                os._exit(0)"
    ran = run(agent, tmp_path, script(before=before), ITERABLE)
    assert (ran.code, [entry.batch_id for entry in agent.entries()]) == (0, list(range(7)))


def test_a_child_that_goes_on_loading_does_not_write_into_its_parents_ring(agent, tmp_path):
    before = "\n            if index == 3 and os.fork() == 0:\n                signal.alarm(20); child = True"
    inside = "\n            if step == 900:\n                os._exit(0)"
    run(agent, tmp_path, script(before=before, inside=inside), ITERABLE)
    assert [entry.batch_id for entry in agent.entries()] == list(range(7))


def test_a_script_that_closes_all_descriptors_in_the_loop_is_still_recorded(agent, tmp_path):
    ran = run(agent, tmp_path, script(inside="step == 3 and os.closerange(0, 256)"), ITERABLE)
    assert ran.code == 0
    assert len(agent.entries()) == 7
    assert len(agent.windows()) == 1


@pytest.mark.parametrize(
    "replace",
    [
        "sys.stdout = sys.stderr = None",
        "sys.stdout.close(); sys.stderr.close()",
        "sys.stdout = sys.__stdout__ = open(os.devnull, 'w')",
        "os.dup2(os.open(os.devnull, os.O_WRONLY), 1)",
    ],
)
def test_a_script_that_replaces_its_output_is_recorded(agent, tmp_path, replace):
    assert run(agent, tmp_path, script(inside=f"if step == 1: {replace}"), ITERABLE).code in (0, 120)
    assert len(agent.entries()) == 7
    assert agent.malformed == []


def test_a_script_that_prints_binary_is_recorded(agent, tmp_path):
    inside = r"sys.stdout.buffer.write(bytes(range(256)) + b'\x1b[1z{\"event\": 1}\n'); sys.stdout.flush()"
    assert run(agent, tmp_path, script(inside=inside), ITERABLE).code == 0
    assert len(agent.entries()) == 7
    assert agent.malformed == []


def test_an_exception_in_a_thread_of_the_script_does_not_fail_the_step(agent, tmp_path):
    inside = (
        "\n            if step == 2:\n                t = threading.Thread(target=lambda: 1 / 0); t.start(); t.join()"
    )
    ran = run(agent, tmp_path, script(inside=inside), ITERABLE)
    assert ran.code == 0
    assert "ZeroDivisionError" in ran.stderr
    assert len(agent.entries()) == 7


def test_a_selector_that_matches_nothing_names_the_nearest(agent, tmp_path):
    ran = run_voirfile(agent, tmp_path, LOOP, LOADER_PROBE.replace("make_loader", "make_loder"))
    assert (ran.code, ran.stdout) == (1, "")
    assert "Did you mean 'make_loader'?" in agent.controls("fail")[0]["detail"]


WORKERS = """
    import os, sys, torch
    from torch.utils.data import DataLoader, Dataset
    class Data(Dataset):
        def __len__(self): return 400
        def __getitem__(self, index):
            if index == FAILS_AT: HOW
            return torch.ones(2)
    if __name__ == "__main__":
        for epoch in range(3):
            for batch in DataLoader(Data(), batch_size=4, num_workers=2, multiprocessing_context=CONTEXT):
                pass
"""


@needs_torch
@pytest.mark.parametrize("how", ["raise KeyError('bad sample')", "os._exit(1)"])
def test_observations_before_a_failed_worker_are_kept(agent, tmp_path, how):
    text = WORKERS.replace("FAILS_AT", "100").replace("HOW", how).replace("CONTEXT", "'fork'")
    config = {"measure": {"warmup_steps": 2, "warmup_s": 0, "window_steps": 50, "window_s": 0}}
    ran = run(agent, tmp_path, text, 'probes.dataloader(ov, units="samples/s")', config=config)
    assert ran.code == 1, ran.stderr
    assert len(agent.entries()) == (25 if "raise" in how else pytest.approx(23, abs=3))
    (error,) = agent.records("error")
    # What torch makes of a worker that is gone depends on where it was reading.
    assert error["type"] in ("KeyError", "RuntimeError", "ConnectionResetError", "EOFError")
    assert len({hello["pid"] for hello in agent.controls("hello")}) == 1


@needs_torch
@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_workers_of_a_loader_record_nothing(agent, tmp_path, context):
    text = WORKERS.replace("FAILS_AT", "-1").replace("HOW", "pass").replace("CONTEXT", repr(context))
    config = {"measure": {"warmup_steps": 2, "warmup_s": 0, "window_steps": 5, "window_s": 0}}
    ran = run(agent, tmp_path, text, 'probes.dataloader(ov, units="samples/s")', config=config)
    assert (ran.code, ran.stderr) == (0, "")
    assert [entry.n for entry in agent.entries()] == [4] * 7
    assert len({hello["pid"] for hello in agent.controls("hello")}) == 1
