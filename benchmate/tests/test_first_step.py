"""The first step of an epoch begins before the loader's iterator is made, whichever way the loop is observed."""

from __future__ import annotations

import json
import time

import pytest
from test_observer import measuring
from test_probes import needs_torch, run

from benchmate.observed_loops import observe_iterable

CONFIG = {"measure": {"warmup_steps": 1, "warmup_s": 0, "window_steps": 1000, "window_s": 0}}
SLOW_S = 0.2

SLOW_LOADER = """
    import json, time

    class Loader:
        def __iter__(self):
            time.sleep(0.2)
            return iter([1, 2, 3])

    class Batches:
        def __init__(self):
            self.left = [1, 2, 3]
        def __iter__(self):
            return self
        def __next__(self):
            if not self.left:
                raise StopIteration
            return self.left.pop()

    def make_loader():
        return Loader()

    def make_batches():
        time.sleep(0.2)
        return Batches()

    def train(batches):
        for batch in batches:
            time.sleep(0.002)

    if __name__ == "__main__":
        epochs = []
        for epoch in range(4):
            begin = time.perf_counter()
            train(EPOCH)
            epochs.append(time.perf_counter() - begin)
        print(json.dumps(epochs))
"""


@pytest.mark.parametrize(
    ("epoch", "probe"),
    [
        ("Loader()", 'probes.iterable(ov, "__main__.Loader.__iter__", units="items/s", batch_size=1)'),
        ("make_loader()", 'probes.iterable(ov, "__main__.make_loader", units="items/s", batch_size=1)'),
        ("make_loader()", 'probes.loader(ov, "//make_loader() as loader", units="items/s", batch_size=1)'),
        ("make_batches()", 'probes.iterable(ov, "__main__.make_batches", units="items/s", batch_size=1)'),
        ("Loader()", 'probes.argument(ov, "__main__.train", "batches", units="items/s", batch_size=1)'),
    ],
)
def test_the_steps_of_an_epoch_last_as_long_as_the_epoch(agent, tmp_path, epoch, probe):
    ran = run(agent, tmp_path, SLOW_LOADER.replace("EPOCH", epoch), probe, config=CONFIG)
    assert (ran.code, ran.stderr) == (0, "")
    epochs = json.loads(ran.stdout)
    entries = agent.entries()
    steps_s = [sum(entry.host_ns for entry in entries[first : first + 3]) / 1e9 for first in range(0, len(entries), 3)]
    assert len(steps_s) == len(epochs) == 4
    for took_s, of_steps_s in zip(epochs, steps_s, strict=True):
        assert took_s > SLOW_S
        assert of_steps_s == pytest.approx(took_s, abs=SLOW_S / 2)
    assert all(entry.wait_ns > SLOW_S * 1e9 for entry in entries[::3])


@needs_torch
def test_starting_the_workers_of_a_dataloader_is_in_the_first_step(agent, tmp_path):
    script = """
        import json, time, torch
        from torch.utils.data import DataLoader, TensorDataset

        class Slow(DataLoader):
            def _get_iterator(self):
                time.sleep(0.2)
                return super()._get_iterator()

        data = TensorDataset(torch.randn(12, 8))
        epochs = []
        for epoch in range(4):
            loader = Slow(data, batch_size=4, num_workers=epoch % 2)
            epochs.append(time.perf_counter_ns())
            for batch in loader:
                pass
        print(json.dumps(epochs))
    """
    ran = run(agent, tmp_path, script, 'probes.dataloader(ov, units="items/s")', config=CONFIG)
    assert (ran.code, ran.stderr) == (0, "")
    entries = agent.entries()
    for begin_ns, first in zip(json.loads(ran.stdout), entries[::3], strict=True):
        assert begin_ns <= first.t0_ns < begin_ns + SLOW_S / 2 * 1e9
        assert first.host_ns > SLOW_S * 1e9


def test_an_iterator_that_another_step_has_used_up_the_time_of_begins_when_it_is_asked():
    here = measuring(warmup=1, window=100, stop=None)
    observer = here.observer("train", "items/s")
    observer.begin_loop()
    ahead = observe_iterable(iter([1, 2]), observer, 1)
    observer.begun = None
    for _ in observe_iterable([1, 2, 3], observer, 1):
        observer.begin_loop()  # the next epoch's iterator, made early
        time.sleep(0.01)
    begin_ns = time.perf_counter_ns()
    for _ in ahead:
        pass
    here.finish()
    entries = here.sink.of("rate")
    assert len(entries) == 5
    assert entries[3]["t0_ns"] >= begin_ns


def test_generators_and_iterators_begin_with_their_first_batch():
    def batches():
        time.sleep(SLOW_S)
        yield 1

    here = measuring(warmup=0, window=100, stop=None)
    observer = here.observer("train", "items/s")
    loop = observe_iterable(batches(), observer, 1)
    begin = time.perf_counter()
    for _ in loop:
        pass
    took_s = time.perf_counter() - begin
    here.finish()
    (entry,) = here.sink.of("rate")
    assert entry["elapsed"] == pytest.approx(took_s, abs=SLOW_S / 2)
