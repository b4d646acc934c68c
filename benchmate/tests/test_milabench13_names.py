"""The names that programs of milabench 1.3 import from benchmate, used as they use them. `MILABENCH13=DIR`: a checkout of it."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent import Agent

from benchmate import datagen, timeline, toggles
from benchmate.dataloader import dataloader_arguments, image_folder, imagenet_dataloader
from benchmate.hugginface import download_hf_dataset, download_hf_model
from benchmate.jaxmem import memory_peak_fetcher
from benchmate.profiler import jax_profiler
from benchmate.ux import long_action

CHECKOUT = os.environ.get("MILABENCH13", "")
PACKAGES = ("benchmate", "voir", "giving", "ptera")


def needs(*modules: str) -> Any:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {' '.join(missing)}")


def python(code: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env}, check=False, timeout=100)


# Names


def imported_names() -> Iterator[tuple[str, str, str]]:
    """Yield (file, module, name) of what the benchmarks of the checkout import from these packages."""
    for file in sorted(Path(CHECKOUT, "benchmarks").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PACKAGES:
                yield from ((str(file), node.module, alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from ((str(file), alias.name, "") for alias in node.names if alias.name.split(".")[0] in PACKAGES)


@pytest.mark.parametrize(
    ("module", "name"),
    [("monitor", name) for name in ("auto_push", "monogpu_monitor", "multigpu_monitor", "smuggle_monitor")]
    + [("metrics", "is_running_with_voir")],
)
def test_names_that_no_benchmark_of_the_project_imports_are_there_for_others(module, name):
    assert callable(getattr(importlib.import_module(f"benchmate.{module}"), name))


@pytest.mark.skipif(not CHECKOUT, reason="MILABENCH13 is not set: no checkout of milabench 1.3")
@needs("torch", "tqdm")
def test_every_name_that_a_benchmark_of_the_project_imports_is_there():
    names = list(imported_names())
    missing = []
    for file, module, name in names:
        try:
            if name and not hasattr(importlib.import_module(module), name):
                importlib.import_module(f"{module}.{name}")
            importlib.import_module(module)
        except ImportError as error:
            missing.append((file, module, name, str(error)))
    assert len(names) > 60
    assert missing == []


def test_importing_the_names_imports_nothing_heavy():
    done = python(
        """
        import sys
        from benchmate.benchrun import forward_voir_file
        from benchmate.datagen import device_count, generate_fakeimagenet
        from benchmate.dataloader import dataloader_arguments, imagenet_dataloader
        from benchmate.hugginface import download_hf_dataset, download_hf_model
        from benchmate.jaxmem import memory_peak_fetcher
        from benchmate.profiler import jax_profiler
        from benchmate.timeline import timeline
        from benchmate.toggles import get_observation_count
        from benchmate.ux import long_action
        print(sorted({"torch", "numpy", "PIL", "jax", "torchvision", "multiprocessing"} & set(sys.modules)))
        """
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


# Images

PREPARE = (
    "from benchmate.datagen import generate_fakeimagenet\nif __name__ == '__main__':\n    generate_fakeimagenet()\n"
)


def prepare(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    script = folder / "prepare.py"
    script.write_text(PREPARE)
    env = {"MILABENCH_DIR_DATA": str(folder), **env}
    command = [sys.executable, str(script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env}, check=False, timeout=100)


def images(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*.JPEG")}


@needs("numpy", "PIL")
def test_images_are_in_the_layout_of_imagenet_and_are_only_added_to(tmp_path):
    arguments = ["--batch-size", "4", "--batch-count", "5", "--device-count", "1", "--image-size", "3", "8", "8"]
    done = prepare(tmp_path, *arguments, "--model", "resnet18", "--loader=pytorch")
    assert done.returncode == 0, done.stderr
    root = tmp_path / "FakeImageNet"
    first = images(root)
    assert {name.split("/")[0] for name in first} == {"train", "val", "test"}
    assert len(first) == 24
    assert {"train/19/19_19.JPEG", "val/1/ILSVRC2012_val_00000001.JPEG", "test/0/ILSVRC2012_test_00000000.JPEG"} <= set(
        first
    )
    assert (root / "labels.txt").read_text().splitlines() == [f"{label},{label}" for label in range(20)]
    assert json.loads((root / "done").read_text()) == {"train": 20, "val": 2, "test": 2}
    # Another benchmark, which needs more of the same.
    assert prepare(tmp_path, *arguments, MILABENCH_TESTING_PREPARE="5,5").returncode == 0
    more = images(root)
    assert len(more) == 29
    assert first.items() <= more.items()
    done = prepare(tmp_path, *arguments)
    assert done.stdout.splitlines()[0] == f"{root}/train: 20 images are already there"
    assert images(root) == more


@needs("numpy", "PIL")
def test_what_a_killed_prepare_left_is_completed(tmp_path):
    from PIL import Image

    code = "from benchmate.datagen import generate_fakeimagenet as g; g()"
    env = {**os.environ, "MILABENCH_DIR_DATA": str(tmp_path)}
    maker = subprocess.Popen([sys.executable, "-c", code, "--device-count", "1"], env=env, stdout=subprocess.DEVNULL)
    train = tmp_path / "FakeImageNet" / "train"
    deadline = time.monotonic() + 60
    while sum(1 for _ in train.rglob("*.JPEG")) < 20:
        assert time.monotonic() < deadline
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    done = prepare(tmp_path, "--batch-size", "10", "--batch-count", "4", "--device-count", "1")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in train.rglob(".*") if path.is_file()] == []
    for path in train.rglob("*.JPEG"):
        with Image.open(path) as image:
            image.load()
            assert image.size == (384, 384)


@pytest.mark.parametrize(
    ("env", "line"),
    [
        ({"MILABENCH_TESTING_PREPARE": "4"}, "MILABENCH_TESTING_PREPARE='4': expected two numbers, SIZE,COUNT"),
        (
            {"MILABENCH_DIR_DATA": ""},
            "generate_fakeimagenet: no output folder: set MILABENCH_DIR_DATA, or pass --output DIR",
        ),
    ],
)
def test_what_is_wrong_with_a_request_for_images_is_one_line(tmp_path, env, line):
    done = prepare(tmp_path, **env)
    assert (done.returncode, done.stderr) == (1, line + "\n")


def test_images_of_somebody_else_are_left_as_they_are(tmp_path):
    images = tmp_path / "FakeImageNet"
    images.mkdir()
    (images / "train.tar").write_text("mine")
    done = prepare(tmp_path, "--batch-size", "1", "--batch-count", "1", "--device-count", "1")
    assert done.returncode == 1 and str(images) in done.stderr
    assert [(path.name, path.read_text()) for path in images.iterdir()] == [("train.tar", "mine")]


def test_the_arguments_of_a_program_may_come_with_a_namespace(monkeypatch):
    args = datagen.fakeimagenet_args(["--batch-size", "7", "--epochs", "3", "--val", "0.5"])
    assert (args.batch_size, args.batch_count, args.val, args.test) == (7, 60, [0.5], 0.1)


def test_the_devices_that_a_program_may_see_are_counted(tmp_path, monkeypatch):
    devices = tmp_path / "devices.json"
    devices.write_text(json.dumps({"count": 4, "devices": [{"uuid": "GPU-1", "name": "x", "readings": [{"t": 0}]}]}))
    monkeypatch.setenv("MILABENCH_SIMULATED_DEVICES", str(devices))
    assert datagen.device_count() == 4
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,2")
    assert datagen.device_count() == 2


# Loaders


def loader_arguments(*words: str) -> Namespace:
    parser = ArgumentParser()
    dataloader_arguments(parser)
    return parser.parse_args(words)


def test_the_arguments_of_a_loader_have_the_defaults_that_suites_rely_on(monkeypatch):
    monkeypatch.setenv("MILABENCH_DIR_DATA", "/d")
    assert vars(loader_arguments()) == {"batch_size": 16, "loader": "pytorch", "num_workers": 8, "data": "/d"}


def test_images_are_found_in_the_folder_or_below_it(tmp_path, monkeypatch):
    (tmp_path / "FakeImageNet" / "train").mkdir(parents=True)
    monkeypatch.setenv("MILABENCH_DIR_DATA", str(tmp_path))
    expected = str(tmp_path / "FakeImageNet" / "train")
    assert [image_folder(None), image_folder(str(tmp_path)), image_folder(f"{tmp_path}/FakeImageNet")] == [expected] * 3
    with pytest.raises(SystemExit, match="no images: /nowhere/train and /nowhere/FakeImageNet/train are no folders"):
        image_folder("/nowhere")


def test_dali_that_is_not_installed_is_one_line(tmp_path):
    if importlib.util.find_spec("nvidia.dali" if importlib.util.find_spec("nvidia") else "nvidia"):
        pytest.skip("DALI is installed")
    (tmp_path / "train").mkdir()
    with pytest.raises(SystemExit, match="--loader dali: NVIDIA DALI is not installed in this environment"):
        imagenet_dataloader(loader_arguments("--loader", "dali", "--data", str(tmp_path)), None)


@needs("torch", "torchcompat")
@pytest.mark.parametrize("kind", ["fixed", "random"])
def test_synthetic_batches_have_the_output_of_the_model_as_targets(kind):
    import torch

    model = torch.nn.Sequential(torch.nn.AvgPool2d(244), torch.nn.Flatten(), torch.nn.Linear(3, 5))
    loader = imagenet_dataloader(loader_arguments("--loader", f"synthetic_{kind}", "--batch-size", "2"), model)
    batches = iter(loader)
    images, targets = next(batches)
    assert (images.shape, targets.shape) == ((2, 3, 244, 244), (2, 5))
    assert not targets.requires_grad
    assert torch.equal(images, next(batches)[0]) == (kind == "fixed")
    assert len(loader) == 1000


@needs("torch", "numpy")
def test_fake_images_are_sixty_batches():
    arguments = loader_arguments("--loader", "pytorch_fakedataset", "--batch-size", "3", "--num-workers", "0")
    batches = list(imagenet_dataloader(arguments, None))
    assert len(batches) == 60
    assert batches[0][0].shape == (3, 3, 224, 224)


@needs("torch", "numpy", "PIL", "torchvision")
def test_images_of_prepare_are_loaded_and_shared_among_ranks(tmp_path):
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        pytest.skip(f"torchvision does not fit torch here: {error}")
    words = ["--batch-size", "4", "--batch-count", "2", "--device-count", "1", "--image-size", "3", "16", "16"]
    assert prepare(tmp_path, *words).returncode == 0
    arguments = loader_arguments("--data", f"{tmp_path}/FakeImageNet", "--num-workers", "0", "--batch-size", "2")
    alone = list(imagenet_dataloader(arguments, None))
    assert sorted(label for _, labels in alone for label in labels.tolist()) == list(range(8))
    assert alone[0][0].shape == (2, 3, 224, 224)
    ranks = [list(imagenet_dataloader(arguments, None, rank, 2)) for rank in (0, 1)]
    assert sorted(label for rank in ranks for _, labels in rank for label in labels.tolist()) == list(range(8))


@needs("torch", "numpy")
def test_a_voirfile_can_take_the_loader_by_a_probe(agent: Agent):
    voirfile = agent.folder / "voirfile.py"
    voirfile.write_text(
        textwrap.dedent(
            """
            from ptera import refstring
            from benchmate.dataloader import imagenet_dataloader

            def instrument_main(ov):
                yield ov.phases.load_script
                probe = ov.probe(f"{refstring(imagenet_dataloader)}() as loader", overridable=True)
                probe["loader"].override(lambda loader: ["batch"] * len(loader))
            """
        )
    )
    main = agent.folder / "main.py"
    main.write_text(
        textwrap.dedent(
            """
            from argparse import ArgumentParser
            from benchmate.dataloader import dataloader_arguments, imagenet_dataloader
            def main():
                parser = ArgumentParser()
                dataloader_arguments(parser)
                print(list(imagenet_dataloader(parser.parse_args(), None))[:2])
            main()
            """
        )
    )
    words = ["--loader", "pytorch_fakedataset", "--batch-size", "1", "--num-workers", "0"]
    ran = agent.run("--voirfile", str(voirfile), str(main), *words)
    assert (ran.code, ran.stdout) == (0, "['batch', 'batch']\n"), ran.stderr


# Downloads, progress, small things


@pytest.mark.parametrize(
    ("get", "package"), [(download_hf_model, "huggingface_hub"), (download_hf_dataset, "datasets")]
)
def test_a_download_that_is_not_possible_is_one_line(get, package, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    reason = "" if importlib.util.find_spec(package) else f"the package {package} is not installed"
    with pytest.raises(SystemExit, match=f"^(model|data set) nobody/nothing: cannot be downloaded: {reason}") as ended:
        get("nobody/nothing")
    assert "\n" not in str(ended.value)


@needs("tqdm")
def test_progress_is_drawn_rarely_or_not_at_all():
    code = """
    from benchmate.progress import tqdm
    bar = tqdm(range(5), mininterval=0.1)
    state = [bar.disable] if bar.disable else [bar.disable, bar.mininterval, bar.maxinterval]
    print(*state, sum(bar))
    """
    assert python(code).stdout == "False 30.0 60.0 10\n"
    done = python(code, MILABENCH_NO_PROGRESS="1")
    assert (done.stdout, done.stderr) == ("True 10\n", "")


@needs("tqdm")
def test_progress_of_others_can_be_the_same():
    code = "import benchmate.progress, tqdm.auto; print(tqdm.auto.tqdm is tqdm.tqdm is benchmate.progress.tqdm)"
    assert python(code, MILABENCH_GLOBAL_PATCH="1").stdout == "True\n"
    assert python(code).stdout == "False\n"


def test_a_long_action_reports_itself_until_it_ends_however():
    done = python(
        """
        import threading, time
        from benchmate.ux import long_action
        try:
            with long_action("Still working", 0.01):
                time.sleep(0.2)
                1 / 0
        except ZeroDivisionError:
            print(threading.active_count())
        """
    )
    *lines, threads = done.stdout.splitlines()
    assert lines
    assert {line.split(" (")[0] for line in lines} == {"Still working"}
    assert threads == "1"


def test_a_short_action_reports_nothing(capsys):
    with long_action("Still working", 60):
        pass
    assert capsys.readouterr().out == ""


def test_counts_can_be_overridden_by_the_environment(monkeypatch):
    assert toggles.get_observation_count(40) == 40
    monkeypatch.setenv("BENCHMATE_OBSERVATION_COUNT", "4")
    monkeypatch.setenv("BENCHMATE_POLL_INTERVAL", "x")
    assert toggles.get_observation_count(40) == 4
    with pytest.raises(SystemExit, match="BENCHMATE_POLL_INTERVAL='x': expected a number"):
        toggles.get_poll_interval(1.0)


def test_a_timeline_spreads_the_tokens_of_requests_over_their_time():
    now = time.time()
    outputs = [
        {"start_time": now - 10, "latency": 5.0, "output_tokens": 40, "prompt_len": 10},
        Namespace(start_time=now - 10, latency=10.0, output_tokens=100, prompt_len=0, success=True),
        {"start_time": now - 9, "latency": 0.0, "output_tokens": 0, "prompt_len": 10, "success": False},
    ]
    first, second = timeline.timeline(outputs, 2)
    assert first["time"] == pytest.approx(now - 5, abs=1)
    assert second["time"] == pytest.approx(now, abs=1)
    expected = {"active_jobs": 2, "start_job": 2, "finished_job": 1, "ran_through": 0}
    assert {key: first[key] for key in expected} == expected
    assert (first["rate"], first["active_jobs_pct"]) == (pytest.approx(20.0), pytest.approx(2.0))
    assert (second["rate"], second["active_jobs"], second["finished_job"]) == (pytest.approx(10.0), 1, 1)


def test_a_timeline_by_another_clock_has_unix_times():
    (only,) = timeline.timeline(
        [{"start_time": time.perf_counter() - 2, "latency": 1, "output_tokens": 5, "prompt_len": 0}], 1
    )
    assert only["time"] == pytest.approx(time.time() - 1, abs=60)
    assert timeline.timeline([], 30) == []


def test_no_trace_is_made_unless_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("MILABENCH_PROFILE_DIR", str(tmp_path / "trace"))
    with jax_profiler():
        pass
    assert not (tmp_path / "trace").exists()


@needs("jax")
def test_a_trace_is_written_where_it_is_asked_for(tmp_path):
    code = """
    import jax
    from benchmate.profiler import jax_profiler
    with jax_profiler():
        jax.numpy.ones(3).block_until_ready()
    """
    done = python(code, MILABENCH_PROFILE="1", MILABENCH_DIR_EXTRA=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "trace").rglob("*.xplane.pb"))


@needs("jax")
def test_a_device_without_statistics_has_no_peak_of_memory():
    import jax

    if jax.default_backend() != "cpu":
        pytest.skip("the device of this machine counts its memory")
    assert memory_peak_fetcher()() is None


@needs("torch")
def test_workers_of_benchrun_give_through_the_relay(agent: Agent):
    worker = agent.folder / "worker.py"
    worker.write_text(
        "import json, os\n"
        "record = {'rate': 1.0 + int(os.environ['RANK'])}\n"
        "os.write(int(os.environ['DATA_FD']), json.dumps(record).encode() + b'\\n')\n"
    )
    words = ["-m", "benchmate.benchrun", "--nproc-per-node=2", "--master-port=0", str(worker)]
    ran = agent.run("--", sys.executable, *words, module="benchmate.milabench13.relay", env={"OMP_NUM_THREADS": "1"})
    assert ran.code == 0, ran.stderr
    assert sorted(data["rate"] for data in agent.records() if "rate" in data) == [1.0, 2.0]
