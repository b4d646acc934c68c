"""What the benchmarks' prepare.py make: once, and never in place of what somebody else put there."""

from __future__ import annotations

import json
import os
import runpy
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.test_layers import ROOT

SAMPLES = {"program": "sample_reads", "samples": {"files": 3, "bytes": 10, "format": "raw"}}
Prepare = Callable[..., None]


@pytest.fixture
def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prepare:
    """Run the prepare.py of a benchmark with arguments, options, and stand-ins for the packages that it imports."""
    import benchmate

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MILABENCH_DIR_DATA", str(tmp_path))
    monkeypatch.setenv("PYSTOW_HOME", str(tmp_path / "pystow"))

    def run(name: str, *argv: str, options: dict[str, object] | None = None, **modules: object) -> None:
        folder = ROOT / "benchmarks" / name
        for module, values in modules.items():
            made = types.ModuleType(module)
            vars(made).update(values if isinstance(values, dict) else {})
            monkeypatch.setitem(sys.modules, module.replace("__", "."), made)
        monkeypatch.setenv("MILABENCH_NAME", name)
        monkeypatch.setattr(benchmate, "option", lambda option, default=None: (options or {}).get(option, default))
        monkeypatch.setattr(sys, "argv", ["prepare.py", *argv])
        monkeypatch.syspath_prepend(str(folder))
        runpy.run_path(str(folder / "prepare.py"), run_name="__main__")
        sys.modules.pop("sample_files", None)

    return run


def test_the_template_makes_its_points_once_and_replaces_no_others(prepare: Prepare, tmp_path: Path) -> None:
    points = tmp_path / "_template" / "points.json"
    prepare("_template")
    made = points.stat().st_ino
    assert len(json.loads(points.read_text())) == 8192
    prepare("_template")
    assert points.stat().st_ino == made
    points.with_name(".points.json.recipe.json").unlink()
    points.write_text("mine")
    with pytest.raises(SystemExit, match=r"points.json: was not made by milabench, so it stays. Use it as it is"):
        prepare("_template")
    assert points.read_text() == "mine"


def test_a_link_of_a_users_own_stays_and_ours_follows_what_it_leads_to(prepare: Prepare, tmp_path: Path) -> None:
    """Whisper's ffmpeg: its model is there already."""
    options: dict[str, object] = {"dims": {}, "windows": 1}
    for name, recipe in (("model.pt", {"dims": {}, "seed": 20260101}), ("a.wav", {"seed": 20260101, "windows": 1})):
        (tmp_path / name).write_text("made")
        (tmp_path / f".{name}.recipe.json").write_text(json.dumps(recipe))

    def whisper(program: str) -> None:
        ffmpeg = {"get_ffmpeg_exe": lambda: program}
        model = {"ModelDimensions": None, "Whisper": None}
        modules = {"imageio_ffmpeg": ffmpeg, "numpy": {}, "torch": {}, "whisper": {}, "whisper__model": model}
        prepare("whisper", "a.wav", "--model", str(tmp_path / "model.pt"), options=options, **modules)

    link = tmp_path / "bin" / "ffmpeg"
    for program in ("/first/ffmpeg", "/first/ffmpeg", "/second/ffmpeg"):
        whisper(program)
        assert str(link.readlink()) == program
    link.with_name(".ffmpeg.recipe.json").unlink()
    with pytest.raises(SystemExit, match="ffmpeg: was not made by milabench, so it stays"):
        whisper("/third/ffmpeg")
    assert str(link.readlink()) == "/second/ffmpeg"


def test_the_digits_of_a_users_own_stay(prepare: Prepare, tmp_path: Path) -> None:
    made = tmp_path / "mnist-patterns"
    made.mkdir()
    (made / "recipe.json").write_text(json.dumps({"seed": 20260101, "t10k": 10_000, "train": 60_000}))
    prepare("ignite", numpy={}, images={})
    assert str((tmp_path / "MNIST").readlink()) == "mnist-patterns/MNIST"
    (tmp_path / "MNIST").unlink()
    (tmp_path / ".MNIST.recipe.json").unlink()
    (tmp_path / "MNIST").mkdir()
    (tmp_path / "MNIST" / "raw").write_text("mine")
    with pytest.raises(SystemExit, match="MNIST: was not made by milabench, so it stays"):
        prepare("ignite", numpy={}, images={})
    assert (tmp_path / "MNIST" / "raw").read_text() == "mine"


def test_a_download_takes_the_place_of_no_data_set_and_leaves_nothing_else(prepare: Prepare, tmp_path: Path) -> None:
    (tmp_path / "pystow.partial").mkdir()
    (tmp_path / "pystow.partial" / "notes").write_text("mine")

    def fetched(dataset: str) -> object:
        folder = Path(os.environ["PYSTOW_HOME"], "pykeen", "datasets", dataset)
        folder.mkdir(parents=True)
        (folder / "triples").write_text("theirs")
        return types.SimpleNamespace(training=types.SimpleNamespace(num_triples=1), num_entities=1)

    def pykeen(dataset: str) -> str:
        os.environ["PYSTOW_HOME"] = str(tmp_path / "pystow")
        prepare("pykeen", "--dataset", dataset, pykeen={}, pykeen__datasets={"get_dataset": fetched})
        return (tmp_path / "pystow" / "pykeen" / "datasets" / dataset / "triples").read_text()

    assert pykeen("fetched") == "theirs"
    (tmp_path / "pystow" / "pykeen" / "datasets" / "own").mkdir()
    (tmp_path / "pystow" / "pykeen" / "datasets" / "own" / "triples").write_text("mine")
    assert pykeen("own") == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".pystow.lock", "pystow", "pystow.partial"]
    assert (tmp_path / "pystow.partial" / "notes").read_text() == "mine"


def test_samples_are_made_in_no_folder_of_a_users_own(prepare: Prepare, tmp_path: Path) -> None:
    folder = tmp_path / "samples-3x10-raw"
    (folder / "00").mkdir(parents=True)
    (folder / "00" / "0000000.raw").write_text("mine")
    with pytest.raises(SystemExit, match="samples-3x10-raw: was not made by milabench, so it stays"):
        prepare("machine", options=SAMPLES)
    assert (folder / "00" / "0000000.raw").read_text() == "mine"
    folder.rename(tmp_path / "mine")
    for _ in range(2):
        prepare("machine", options=SAMPLES)
    assert len((folder / "checksums.txt").read_text().splitlines()) == 3
