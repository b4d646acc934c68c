"""The folder of a launch: empty, its own, kept or removed as the suite says, and nothing outside of it is removed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Said

from .written import runs

FILE = "made here.txt"
SPY = f'pwd; ls -A; echo "told $TOLD"; test ! -e "{FILE}" && touch "{FILE}"'


def written(folder: Path, **benches: Mapping[str, Any]) -> tuple[str, ...]:
    """The options that name a suite of shell lines, with further keys."""
    shared = {"shell": True, "max_duration": 60, "env": {"TOLD": "{step_dir}/told"}, "plan": {"method": "njobs"}}
    suite = {name: {**shared, **keys} for name, keys in benches.items()}
    path = folder / "suite.json.yaml"
    path.write_text(json.dumps({"profile": "quick", **suite}))
    return ("--use-current-env", "--config", str(path), "--display", "none")


def spied(run: Path) -> dict[str, list[str]]:
    """What each attempt saw, by the stem of its files: its folder, what was in it, what it was told."""
    return {path.stem: path.read_text().splitlines() for path in run.glob("*.stdout")}


def test_each_replicate_and_instance_works_in_an_empty_folder_of_its_own(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    keys = {"command": SPY, "keep_step_dir": "always", "plan": {"method": "njobs", "n": 2}}
    said = milabench("run", *written(tmp_path, **{"a b": keys}), "--repeat", "2")
    assert said.code == 0, said.err
    (run,) = runs(environ["MILABENCH_BASE"])
    stems = ["a%20b.0.R0", "a%20b.0.R1", "a%20b.1.R0", "a%20b.1.R1"]
    assert spied(run) == {stem: [f"{run}/steps/{stem}", f"told {run}/steps/{stem}/told"] for stem in stems}
    assert sorted(path.relative_to(run / "steps").as_posix() for path in run.glob("steps/*/*")) == [
        f"{stem}/{FILE}" for stem in stems
    ]


@pytest.mark.parametrize(
    ("policy", "kept"), [("always", ["bad.0", "good.0"]), (None, ["bad.0"]), ("failed", ["bad.0"]), ("never", [])]
)
def test_the_policy_decides_what_stays(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path, policy: str | None, kept: list[str]
) -> None:
    own = {"keep_step_dir": policy} if policy else {}
    lines = {"good": {"command": SPY, **own}, "bad": {"command": f"{SPY}; exit 3", **own}}
    assert milabench("run", *written(tmp_path, **lines)).code == 1
    (run,) = runs(environ["MILABENCH_BASE"])
    assert sorted(path.name for path in run.glob("steps/*")) == kept
    assert (run / "steps").is_dir() == bool(kept)


def test_a_step_that_printed_no_number_has_failed_and_keeps_its_folder(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    keys = {"command": SPY, "metrics": {"speed": {"pattern": r"speed (\d+)", "direction": "higher"}}}
    assert milabench("run", *written(tmp_path, mute=keys)).code == 1
    (run,) = runs(environ["MILABENCH_BASE"])
    assert (run / "steps" / "mute.0" / FILE).exists()


def test_another_attempt_gets_another_folder(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    here = written(tmp_path, again={"command": f"{SPY}; test -e {tmp_path}/go"})
    assert milabench("run", *here).code == 1
    (tmp_path / "go").touch()
    assert milabench("resume", "--display", "none").code == 0
    (run,) = runs(environ["MILABENCH_BASE"])
    first, second = spied(run)["again.0"], spied(run)["again.0~2"]
    assert (first[0], second[0]) == (f"{run}/steps/again.0", f"{run}/steps/again.0~2")
    assert (len(first), len(second)) == (2, 2), "both found an empty folder"
    # The failed attempt is evidence; the one that passed is not.
    assert [path.name for path in run.glob("steps/*")] == ["again.0"]


def test_nothing_outside_of_the_folder_is_removed(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    (precious / "deep").mkdir(parents=True)
    (precious / "deep" / "file").write_text("mine")
    (precious / "locked").mkdir(mode=0o500)
    links = (
        f"ln -s {precious} a; ln -s {precious}/deep/file b; mkdir -p c/d; ln -s ../../../../.. c/d/up; chmod 500 c/d"
    )
    swapped = f'here=$(pwd); cd /; rmdir "$here"; ln -s {precious} "$here"'
    hollow = 'here=$(pwd); cd ..; mv "$here" "$here.moved"; mkdir -p "$here"; echo x > "$here/file"'
    said = milabench(
        "run",
        *written(
            tmp_path,
            links={"command": links, "keep_step_dir": "never"},
            swapped={"command": swapped, "keep_step_dir": "never"},
            hollow={"command": hollow, "keep_step_dir": "never"},
        ),
        "--display",
        "plain",
    )
    assert said.code == 0, said.err
    (run,) = runs(environ["MILABENCH_BASE"])
    assert (precious / "deep" / "file").read_text() == "mine"
    assert (precious / "locked").stat().st_mode & 0o777 == 0o500
    assert not (run / "steps" / "links.0").exists()
    assert (run / "steps" / "hollow.0" / "file").exists(), "another folder in its place is somebody else's"
    assert (run / "steps" / "swapped.0").is_symlink()
    assert said.err.count("is not removed: it is no longer the folder that was made") == 2


def test_a_plan_shows_where_the_folder_will_be_and_its_hash_does_not_depend_on_the_run(
    milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    here = written(tmp_path, a={"command": "true"})[:3]
    text = milabench("plan", "run", *here, "--full").out
    assert f"cd {environ['MILABENCH_BASE']}/runs/RUN/steps/a.0" in text
    (step,) = json.loads(milabench("plan", "run", *here, "--json").out)["steps"]
    assert (step["cwd"], step["env"]["TOLD"], step["keep_step_dir"]) == ("@{step_dir}", "@{step_dir}/told", "failed")
    assert milabench("run", *here, "--display", "none").code == 0
    (run,) = runs(environ["MILABENCH_BASE"])
    (ran,) = json.loads((run / "manifest.json").read_text())["plan"]["steps"]
    assert ran["hash"] == step["hash"]


def test_a_bundle_holds_what_launches_left_only_where_that_is_asked_for(
    milabench: Callable[..., Said], tmp_path: Path
) -> None:
    import zipfile

    assert milabench("run", *written(tmp_path, a={"command": SPY, "keep_step_dir": "always"})).code == 0
    for words, count in (((), 0), (("--step-dirs",), 1)):
        path = tmp_path / f"{count}.zip"
        assert milabench("bundle", "-o", str(path), *words).code == 0
        assert sum("/steps/" in name for name in zipfile.ZipFile(path).namelist()) == count
        assert milabench("verify", str(path)).code == 0


def test_dev_has_a_folder_too_which_is_gone_afterwards(milabench: Callable[..., Said], tmp_path: Path) -> None:
    here = written(tmp_path, a={"command": "true"})[:3]
    said = milabench(
        "dev", *here, "a", "--", "sh", "-c", 'echo "$TOLD"; ls -A "${TOLD%/told}"; touch "${TOLD%/told}/x"'
    )
    assert said.code == 0, said.err
    (told,) = said.out.splitlines()  # the folder is empty
    assert not Path(told).parent.exists()
    assert "the folder of a repeat, here removed at the end" in said.err
