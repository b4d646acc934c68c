"""JAX dispatches and returns: what the host's clock sees must be the step all the same."""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import time
import types

import pytest
from test_observer import measuring
from test_probes import run

from benchmate.clock import BoundedLag, bounded_lag, wait_for_devices
from benchmate.observed_loops import observe_iterable

needs_jax = pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed")

CONFIG = {"measure": {"warmup_steps": 5, "warmup_s": 0, "window_steps": 24, "window_s": 0}}

STEP = """
    import functools, json, statistics, time
    import jax, jax.numpy as jnp

    @functools.partial(jax.jit, donate_argnums=DONATED)
    def step(weights, batch):
        for _ in range(6):
            weights = jnp.tanh(weights @ batch)
        return weights, weights.sum()

    def batches():
        for _ in range(40):
            yield BATCH

    def train(state, loader):
        for batch in loader:
            state, loss = step(state, batch)
            ended(logs=loss)
        return state

    def ended(logs):
        pass

    BATCH, STATE = jnp.ones((500, 500)) * 0.01, jnp.ones((500, 500))

    def reference_s(state):
        # As long as it takes with a wait at the end, and how long only asking for it takes.
        begin = time.perf_counter()
        for _ in range(20):
            state, loss = step(state, BATCH)
        asked = time.perf_counter() - begin
        state.block_until_ready()
        return state, (time.perf_counter() - begin) / 20, asked / 20

    if __name__ == "__main__":
        STATE, _, _ = reference_s(STATE)
        STATE, before, asked = reference_s(STATE)
        print(json.dumps({"step_s": before, "asked_s": asked}), flush=True)
        while True:
            STATE = train(STATE, batches())
"""


@needs_jax
@pytest.mark.parametrize("donated", ["()", "(0,)"])
@pytest.mark.parametrize(
    "probe",
    [
        'probes.iterable(ov, "__main__.batches", units="steps/s", batch_size=1)',
        'probes.calls(ov, "__main__.ended", units="steps/s", result=lambda logs: logs)',
        'probes.calls(ov, "__main__.step", units="steps/s", when=lambda *_: "loader" in __import__("sys")._getframe(3).f_locals)',
    ],
)
def test_an_observation_lasts_as_long_as_the_step_not_as_its_dispatch(agent, tmp_path, donated, probe):
    ran = run(agent, tmp_path, STEP.replace("DONATED", donated), probe, config=CONFIG)
    assert ran.code == 0, ran.stderr
    told = json.loads(ran.stdout)
    entries = [entry for entry in agent.entries() if not entry.flags & 1][:24]
    # Short steps share an entry.
    steps_s = sorted(entry.host_ns / entry.steps / 1e9 for entry in entries)
    mean_s, middle_s = sum(steps_s) / len(steps_s), steps_s[12]
    # Other programs may slow a step down, and did so to the reference or to the loop; asking for one is much quicker.
    assert told["step_s"] / 3 < middle_s < 3 * told["step_s"]
    assert middle_s > 5 * told["asked_s"]
    assert mean_s == pytest.approx(middle_s, rel=0.7)


@needs_jax
def test_no_more_of_a_state_is_kept_than_the_program_keeps(agent, tmp_path):
    script = """
        import jax, jax.numpy as jnp

        @jax.jit
        def step(state):
            return state + 1, state.sum()

        def main():
            state = jnp.ones((1000, 1000))
            for number in range(8):
                state, loss = step(state)
                if number == 6:
                    print(sum(array.nbytes > 1000 for array in jax.live_arrays()), flush=True)

        main()
    """
    ran = run(agent, tmp_path, script, 'probes.calls(ov, "__main__.step", units="steps/s")')
    assert (ran.code, ran.stdout) == (0, "1\n"), ran.stderr


@needs_jax
def test_compile_time_is_a_metric(agent, tmp_path):
    script = """
        import jax, benchmate
        f = jax.jit(lambda x: x * 2)
        for batch in benchmate.observed([1.0] * 4, batch_size=1):
            f(batch).block_until_ready()
    """
    run(agent, tmp_path, script, "pass", config=CONFIG)
    (compile_s,) = [data for data in agent.records() if data.get("metric") == "compile"]
    assert (compile_s["part"], compile_s["units"], compile_s["direction"]) == ("jax", "s", "lower")
    assert 0 < compile_s["value"] < agent.metrics()["first_step"]


@needs_jax
def test_observing_a_loss_does_not_wait_for_the_device(agent, tmp_path):
    script = """
        import jax, jax.numpy as jnp, benchmate
        for batch in benchmate.observed([1.0] * 30, batch_size=1):
            benchmate.observe_loss(jnp.float32(batch))
    """
    run(agent, tmp_path, script, "pass", config=CONFIG)
    assert set(agent.losses()) == {1.0}


class Array:
    """What the lag needs to know of an array of JAX."""

    nbytes = 8

    def __init__(self, waited: list[int], number: int, donated: bool = False, ready: bool = False) -> None:
        self.waited, self.number, self.donated, self.ready = waited, number, donated, ready

    def is_ready(self):
        return self.ready

    def copy(self):
        return Array(self.waited, 100 + self.number)

    def is_deleted(self):
        return self.donated

    def block_until_ready(self):
        self.waited.append(self.number)


@pytest.fixture
def jax(monkeypatch):
    """A JAX of the few names that are asked for, already started."""
    fake = types.ModuleType("jax")
    fake.live = []
    fake.live_arrays = lambda: list(fake.live)
    fake.tree_util = types.SimpleNamespace(tree_leaves=lambda tree: tree or [])
    bridge = types.ModuleType("jax._src.xla_bridge")
    bridge.backends_are_initialized = lambda: fake.started
    fake.started = True
    monkeypatch.setitem(sys.modules, "jax", fake)
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
    return fake


def test_dispatch_waits_for_the_step_two_before(jax):
    waited: list[int] = []
    lag = BoundedLag()
    for number in range(5):
        lag.add([Array(waited, number)])
    assert waited == [0, 1, 2]


def test_without_a_result_the_newest_small_array_that_is_not_there_yet_stands_for_the_step(jax):
    waited: list[int] = []
    lag = BoundedLag()
    big = Array(waited, 99)
    big.nbytes = 1 << 30
    for number in range(3):
        jax.live = [Array(waited, -2, ready=True), big, Array(waited, number), Array(waited, -1)]
        lag.add(depth=1)
    assert waited == [0, 1]


def test_a_device_that_has_caught_up_is_not_waited_for(jax):
    waited: list[int] = []
    lag = BoundedLag()
    jax.live = [Array(waited, 0, ready=True)]
    for _ in range(5):
        lag.add()
    assert waited == []


def test_for_a_donated_result_the_newest_array_is_waited_for_once_and_copies_from_then_on(jax):
    waited: list[int] = []
    lag = BoundedLag()
    jax.live = [Array(waited, 7)]
    lag.add([Array(waited, 0, donated=True)], depth=1)
    lag.add([Array(waited, 1)], depth=1)
    assert waited == [7]
    for number in (8, 9, 10):
        jax.live = [Array(waited, number)]
        lag.add([Array(waited, number, donated=True)], depth=1)
    assert waited == [7, 1, 108, 109]


def test_short_steps_share_an_entry_which_waits_for_the_one_before(jax):
    waited: list[int] = []
    here = measuring(warmup=1500, window=10**6, stop=None)
    jax.live = [Array(waited, 0)]
    for number, _ in enumerate(observe_iterable(range(9000), here.observer("train", "items/s"), 1)):
        jax.live = [Array(waited, number)]
        until_ns = time.perf_counter_ns() + 20_000
        while time.perf_counter_ns() < until_ns:
            pass
    here.finish()
    entries = here.sink.of("rate")
    assert sum(data.get("steps", 1) for data in entries) == 9000
    in_window = [data for data in entries if not data.get("warmup")]
    # In the middle: another program may stretch an entry, and have the next ones shortened.
    assert statistics.median(data["steps"] for data in in_window) >= 64
    assert 0.001 < statistics.median(data["elapsed"] for data in in_window) < 0.02
    # The ends of entries alone were waited for, and where the window began.
    assert len(waited) <= len(entries)


def test_long_steps_are_entries_of_their_own_two_ahead_of_the_device(jax):
    waited: list[int] = []
    here = measuring(warmup=2, window=10**6, stop=None)
    for number, _ in enumerate(observe_iterable(range(8), here.observer("train", "items/s"), 1)):
        jax.live = [Array(waited, number)]
        time.sleep(0.008)
    here.finish()
    assert len(here.sink.of("rate")) == 8
    assert waited == [1, 2, 3, 4, 5]  # the first step found that JAX was in use


def test_a_jax_that_the_script_imported_but_never_used_is_not_started(jax):
    jax.started = False
    jax.live = [Array([], 1)]
    assert bounded_lag() is None
    wait_for_devices()
