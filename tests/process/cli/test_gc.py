"""`milabench gc`: what nothing refers to goes, whole, and nothing else."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from milabench.events.atomic_write import replace_file
from milabench.events.removal import MARK
from milabench.execute.locks import hold_base, hold_in_use
from milabench.garbage.base_survey import Policy, survey_base
from milabench.garbage.collection import still_unused
from milabench.plan.prepare import data_lock, data_mark
from tests.commands import ROOT, Said
from tests.process.cli.docker import fake_docker
from tests.process.cli.installable import Pair
from tests.process.cli.test_bad_places import disk
from tests.process.cli.test_full_disks import fill
from tests.processes import CEILING_S, started, until

USED = {
    "system": None,
    "arch": None,
    "overrides": [],
    "environments": {"torch": ".store/torch-0123456789abcdef"},
    "programs": {"a": ["used-1"]},
    "images": {},
    "data": ["a"],
    "reference": "",
    "used": 1.0,
    "chosen": 1.0,
}
OLD_S = 10_000


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A base with an environment, a program and data that a suite refers to, and as much that nothing does."""
    suite = tmp_path / "suite.yaml"
    suite.write_text("{}")
    return filled(tmp_path / "base", suite)


def filled(base: Path, suite: Path) -> Path:
    for folder in ("torch-0123456789abcdef", "torch-ffffffffffffffff"):
        env = base / "venv" / ".store" / folder
        (env / "bin").mkdir(parents=True)
        group, _, digest = folder.rpartition("-")
        (env / ".complete").write_text(json.dumps({"group": group, "digest": f"{digest}{digest}"}))
        (env / "library.so").write_bytes(b"x" * 50_000)
        (base / "venv" / ".store" / f"{folder}.lock").touch()
    (base / "venv" / "torch").symlink_to(".store/torch-ffffffffffffffff")
    for program in ("used-1", "unused-1"):
        (base / "code" / program).mkdir(parents=True)
        (base / "code" / f".{program}.complete").write_text(json.dumps({"folder": program}))
        (base / "code" / f".{program}.lock").touch()
    for bench in ("a", "gone"):
        (base / "data" / bench / ".prepared").mkdir(parents=True)
        mark_data(base / "data", bench)
    (base / "data" / "mine").mkdir()
    (base / "suites.json").write_text(json.dumps({"schema": 1, "suites": [{**USED, "config": str(suite)}]}))
    return base


def mark_data(data: Path, bench: str) -> None:
    """Mark a benchmark's data as prepared by milabench."""
    data_mark(data, bench).parent.mkdir(exist_ok=True)
    data_mark(data, bench).touch()
    data_lock(data, bench).touch()


def unused(said: Said) -> list[str]:
    """What a survey says of the base that nothing refers to."""
    survey = json.loads(said.out)
    return sorted(
        str(Path(item["path"]).relative_to(survey["base"])) for item in survey["items"] if item["kept"] is None
    )


def content(base: Path) -> set[str]:
    return {str(path.relative_to(base)) for path in base.rglob("*")}


def write_run(base: Path, name: str, *, ended: float, verdict: str = "passed", plan: Any = None) -> Path:
    run = base / "runs" / name
    run.mkdir(parents=True)
    manifest = {"schema": 1, "phase": "run", "name": name, "files": {"a": "a"}, "plan": plan or {}}
    (run / "manifest.json").write_text(json.dumps(manifest))
    entries: list[dict[str, Any]] = [{"t": ended - 1, "run": "started"}]
    entries += [{"t": ended, "run": "ended", "verdict": verdict}] if verdict else []
    (run / "journal.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return run


def test_nothing_is_removed_without_being_asked_and_then_what_nothing_refers_to(
    milabench: Callable[..., Said], base: Path
) -> None:
    before = content(base)
    shown = milabench("gc", "--base", str(base))
    assert (shown.code, content(base)) == (0, before)
    assert shown.err.startswith("gc: --remove frees ")
    assert unused(milabench("gc", "--json", "--base", str(base))) == [
        "code/unused-1",
        "data/gone",
        "venv/.store/torch-ffffffffffffffff",
    ]
    said = milabench("gc", "--remove", "--base", str(base))
    assert (said.code, said.err.startswith("gc: 3 removed, ")) == (0, True), said.err
    gone = before - content(base)
    assert {path for path in gone if "unused" not in path and "gone" not in path and "ffff" not in path} == {
        "venv/torch"  # the link to what is no more
    }
    assert {"code/used-1", "data/a", "data/mine", "venv/.store/torch-0123456789abcdef/library.so"} <= content(base)
    assert milabench("gc", "--base", str(base)).err == "gc: nothing is unused\n"


def test_a_suite_that_cannot_be_found_keeps_what_it_refers_to_until_it_is_forgotten(
    milabench: Callable[..., Said], base: Path
) -> None:
    """Its disk may not be mounted just now."""
    suite = json.loads((base / "suites.json").read_text())["suites"][0]["config"]
    before = unused(milabench("gc", "--json", "--base", str(base)))
    forgotten = unused(milabench("gc", "--json", "--forget", suite, "--base", str(base)))
    Path(suite).unlink()
    said = milabench("gc", "--json", "--base", str(base))
    assert unused(said) == before
    kept = f"{suite} cannot be found, and its files are kept. --forget {suite} counts them as unused"
    assert json.loads(said.out)["note"] == kept
    assert unused(milabench("gc", "--json", "--forget", suite, "--base", str(base))) == forgotten
    assert {"venv/.store/torch-0123456789abcdef", "code/used-1", "data/a"} <= set(forgotten)
    said = milabench("gc", "--forget", "nope", "--base", str(base))
    hint = "Your own are named by their paths"
    assert (said.code, said.err) == (
        2,
        f"error: --forget nope: no such suite was used in {base}. Used: {suite}. {hint}\n",
    )


def test_what_links_lead_to_outside_of_the_base_stays(
    milabench: Callable[..., Said], base: Path, tmp_path: Path
) -> None:
    write_run(base, "run.old", ended=1.0)
    shared = tmp_path / "shared"
    shared.mkdir()
    for name in ("data", "runs", "code"):
        (base / name).rename(shared / name)
        (base / name).symlink_to(shared / name)
    # A link that stays below the base is none of these.
    (base / "venv" / ".store").rename(base / "disk")
    (base / "venv" / ".store").symlink_to(base / "disk")
    before = content(shared)
    said = milabench("gc", "--remove", "--keep", "0", "--base", str(base))
    assert (said.code, content(shared)) == (0, before)
    links = [base / name for name in ("code", "data", "runs")]
    note = "; ".join(f"{link} leads out of the base: its target is not touched" for link in links)
    assert said.err.splitlines()[0] == f"note: {note}"
    assert sorted(path.name for path in (base / "disk").iterdir() if path.is_dir()) == ["torch-0123456789abcdef"]
    listed = json.loads(milabench("gc", "--json", "--base", str(base)).out)["items"]
    assert {item["kind"] for item in listed if item["path"] in map(str, links)} == {"other"}


def test_a_base_that_was_moved_keeps_what_its_own_suites_refer_to(milabench: Callable[..., Said], pair: Pair) -> None:
    within = pair.base / "cache" / "capsules" / "one"
    within.mkdir(parents=True)
    for name in ("a", "a.yaml"):
        (pair.folder / name).rename(within / name)
    assert milabench("install", "--config", str(within / "a.yaml")).code == 0
    before = unused(milabench("gc", "--json"))
    assert not [path for path in before if path.startswith(("venv", "cache"))]
    moved = pair.base.rename(pair.folder / "base two")
    assert unused(milabench("gc", "--json", "--base", str(moved))) == before
    said = milabench("list", "--base", str(moved), cwd=pair.folder)
    assert (said.code, said.err.split(",")[0]) == (0, "suite: base two/cache/capsules/one/a.yaml"), said.err


def test_a_base_of_an_older_version_keeps_everything_until_a_suite_is_recorded(
    milabench: Callable[..., Said], base: Path
) -> None:
    (base / "suites.json").unlink()
    said = milabench("gc", "--remove", "--base", str(base))
    assert (said.code, said.err) == (
        0,
        "note: which suites were used here is not recorded. `milabench install --config SUITE` records it\n"
        "gc: 0 removed, 0 B freed\n",
    )


def test_suites_of_which_only_runs_tell_keep_what_their_last_run_used(
    milabench: Callable[..., Said], base: Path, tmp_path: Path
) -> None:
    suite = tmp_path / "older.yaml"
    suite.write_text("{}")
    run = write_run(base, "run.of-an-older-version", ended=1.0)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest |= {"locks": {"torch": "f" * 64}, "options": {"config_file": str(suite)}}
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert unused(milabench("gc", "--json", "--base", str(base))) == ["code/unused-1", "data/gone"]
    suite.unlink()
    assert "venv/.store/torch-ffffffffffffffff" in unused(milabench("gc", "--json", "--base", str(base)))


def test_runs_go_only_when_asked_and_never_those_that_can_be_resumed_or_are_a_reference(
    milabench: Callable[..., Said], base: Path
) -> None:
    now = time.time()
    for day in range(1, 6):
        write_run(base, f"run.{day}", ended=now - day * 86400)
    write_run(base, "run.interrupted", ended=now - 50 * 86400, verdict="interrupted")
    write_run(base, "run.crashed", ended=now - 50 * 86400, verdict="")
    record = json.loads((base / "suites.json").read_text())
    record["suites"][0]["reference"] = "run.5"
    (base / "suites.json").write_text(json.dumps(record))

    def runs(*options: str) -> list[str]:
        said = milabench("gc", "--json", *options, "--base", str(base))
        return [path for path in unused(said) if path.startswith("runs/")]

    assert runs() == []
    assert runs("--keep", "2") == ["runs/run.3", "runs/run.4"]
    assert runs("--runs-older-than", "84h") == ["runs/run.4"]
    assert runs("--runs-older-than", "84h", "--keep", "4") == []
    assert milabench("gc", "--remove", "--keep", "2", "--base", str(base)).code == 0
    assert sorted(path.name for path in (base / "runs").iterdir()) == [
        "run.1",
        "run.2",
        "run.5",
        "run.crashed",
        "run.interrupted",
    ]


def test_what_a_run_that_can_be_resumed_needs_is_kept(milabench: Callable[..., Said], base: Path) -> None:
    env, program, data = base / "venv/.store/torch-ffffffffffffffff", base / "code/unused-1", base / "data/gone"
    step = {"id": "gone", "bench": "gone", "argv": [f"{env}/bin/python", f"{program}/main.py"], "cwd": str(data)}
    plan = {"steps": [step]}
    run = write_run(base, "run.cut", ended=time.time(), verdict="", plan=plan)
    assert unused(milabench("gc", "--json", "--base", str(base))) == []
    # One of an older version named the link.
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["plan"] = {"steps": [{"id": "gone", "bench": "gone", "argv": [f"{base}/venv/torch/bin/python"]}]}
    manifest["locks"] = {"torch": "f" * 64}
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert unused(milabench("gc", "--json", "--base", str(base))) == ["code/unused-1", "data/gone"]


def test_what_killed_commands_left_goes_and_what_is_being_made_stays(
    milabench: Callable[..., Said], base: Path
) -> None:
    old = [
        base / ".removed" / "torch-1-0123abcd",
        base / "code" / ".other-1.building",
        base / "cache" / "wheels" / ".benchmate-1.building",
        base / "venv" / ".store" / "killed-0123456789abcdef",
        base / "runs" / "run.empty",
    ]
    fresh = base / "code" / ".now-1.building"
    for folder in (*old, fresh):
        folder.mkdir(parents=True)
        if folder.name.endswith(".building"):
            (folder / MARK).touch()
    (base / "venv" / ".store" / "killed-0123456789abcdef.log").touch()
    (base / "runs" / "run.empty" / "orchestrator.lock").touch()
    draft = base / ".0123456789abcdef.tmp"
    draft.touch()
    (base / "venv" / "dangling").symlink_to(".store/nothing-0123456789abcdef")
    (base / "venv" / "mine").symlink_to("/mnt/not-mounted/venv")
    then = time.time() - OLD_S
    for path in (*old, draft):
        os.utime(path, (then, then))
    said = milabench("gc", "--json", "--base", str(base))
    left = [item for item in json.loads(said.out)["items"] if item["kind"] == "leftovers"]
    assert sorted(item["path"] for item in left if item["kept"] is None) == sorted(
        map(str, [*old, draft, base / "venv" / "dangling"])
    )
    assert [item["path"] for item in left if item["kept"]] == [str(fresh)]
    assert milabench("gc", "--remove", "--base", str(base)).code == 0
    assert fresh.exists()
    assert (base / "venv" / "mine").is_symlink()
    assert not any(path.exists() or path.is_symlink() for path in (*old, draft, base / "venv" / "dangling"))


def test_a_capsule_is_kept_for_its_suite_and_for_its_interpreter(milabench: Callable[..., Said], base: Path) -> None:
    manifests = [name.encode() for name in ("suites", "python", "unused")]
    capsules = [base / "cache" / "capsules" / hashlib.sha256(each).hexdigest()[:16] for each in manifests]
    for capsule, manifest in zip(capsules, manifests, strict=True):
        (capsule / "suite").mkdir(parents=True)
        (capsule / "suite" / "suite.yaml").write_text("{}")
        (capsule / "capsule.json").write_bytes(manifest)
    record = json.loads((base / "suites.json").read_text())
    record["suites"].append({**USED, "config": str(capsules[0] / "suite" / "suite.yaml"), "environments": {}})
    (base / "suites.json").write_text(json.dumps(record))
    environment = base / "venv" / ".store" / "torch-0123456789abcdef"
    (environment / "pyvenv.cfg").write_text(f"home = {capsules[1]}/python/3.13/bin\n")
    said = milabench("gc", "--json", "--base", str(base))
    assert [path for path in unused(said) if path.startswith("cache")] == [str(capsules[2].relative_to(base))]


def test_a_file_with_another_name_elsewhere_is_not_counted_as_freed(
    milabench: Callable[..., Said], base: Path, tmp_path: Path
) -> None:
    library = base / "venv" / ".store" / "torch-ffffffffffffffff" / "library.so"
    os.link(library, tmp_path / "cache-of-uv")
    said = milabench("gc", "--json", "--base", str(base))
    (item,) = (item for item in json.loads(said.out)["items"] if item["path"] == str(library.parent))
    assert item["bytes"] - item["freed_bytes"] == library.stat().st_blocks * 512
    assert "more has other names too" in milabench("gc", "--base", str(base)).err


def test_an_environment_in_use_is_kept(milabench: Callable[..., Said], pair: Pair, environ: dict[str, str]) -> None:
    assert milabench("install", *pair.config("a")).code == 0
    inside = pair.folder / "inside"
    shell = ["dev", "a", *pair.config("a"), "--", "sh", "-c", f"touch '{inside}'; cat"]
    with started([sys.executable, "-m", "milabench", *shell], env=environ, cwd=ROOT, stdin=subprocess.PIPE) as dev:
        until(inside.exists)
        forget = ("--forget", str(pair.folder / "a.yaml"))
        said = milabench("gc", "--remove", "--json", *forget)
        (item,) = (item for item in json.loads(said.out)["items"] if item["kind"] == "environments")
        assert (said.code, item["kept"]) == (0, "a command uses it")
        dev.communicate()
    assert milabench("gc", "--remove").code == 0
    assert not list((pair.base / "venv" / ".store").glob("shared-*/"))


@pytest.mark.e2e
@pytest.mark.long
def test_what_an_install_has_replaced_is_removed_and_both_suites_still_run(
    milabench: Callable[..., Said], pair: Pair
) -> None:
    for name in "ab":
        assert milabench("install", *pair.config(name)).code == 0
        assert milabench("prepare", *pair.config(name)).code == 0
    assert [path for path in unused(milabench("gc", "--json")) if path.startswith("venv")] == []
    assert milabench("run", *pair.config("b")).code == 0
    (pair.folder / "b" / "requirements.in").write_text("tool==2\nvoir\n")
    assert milabench("install", *pair.config("b")).code == 0
    (replaced,) = (path for path in unused(milabench("gc", "--json")) if path.startswith("venv"))
    assert milabench("gc", "--remove").code == 0
    assert not (pair.base / replaced).exists()
    archive = pair.folder / "run.zip"
    packed = milabench("bundle", "-o", str(archive))
    assert (packed.code, "is gone" in packed.err) == (0, False), packed.err
    assert [name for name in zipfile.ZipFile(archive).namelist() if name.endswith("shared/requirements.txt")]
    assert milabench("prepare", *pair.config("b")).code == 0
    for name in "ab":
        said = milabench("run", *pair.config(name))
        assert said.code == 0, said.err


def test_one_that_is_killed_leaves_nothing_half_and_the_next_ends_its_work(
    milabench: Callable[..., Said], base: Path, environ: dict[str, str]
) -> None:
    env = base / "venv" / ".store" / "torch-ffffffffffffffff"
    for number in range(20_000):
        (env / f"{number}.py").touch()
    command = [sys.executable, "-m", "milabench", "gc", "--remove", "--base", str(base)]
    with started(command, env=environ, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as gc:
        until(lambda: list((base / ".removed").glob("torch*")))
        gc.send_signal(signal.SIGKILL)
    assert not env.exists()
    assert milabench("gc", "--remove", "--base", str(base)).code == 0
    assert not (base / ".removed").exists()


def test_two_at_once_remove_each_thing_once(base: Path, environ: dict[str, str]) -> None:
    command = [sys.executable, "-m", "milabench", "gc", "--remove", "--json", "--base", str(base)]
    outputs = {"env": environ, "cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with started(command, **outputs) as one, started(command, **outputs) as other:
        removals = [json.loads(process.communicate()[0]) for process in (one, other)]
    assert sorted(len(removal["removed"]) for removal in removals) == [0, 3]
    assert [removal["failures"] for removal in removals] == [[], []]


def test_it_makes_room_on_a_disk_that_is_full(milabench: Callable[..., Said], tmp_path: Path) -> None:
    suite = tmp_path / "suite.yaml"
    suite.write_text("{}")
    with disk(tmp_path / "disk", "2m"):
        base = filled(tmp_path / "disk" / "base", suite)
        (base / ".milabench.lock").touch()
        fill(tmp_path / "disk")
        said = milabench("gc", "--remove", "--base", str(base))
        assert (said.code, said.err.startswith("gc: 3 removed")) == (0, True), said.err
        assert not [path for path in content(base) if "removed" in path]


def test_it_waits_for_an_install(base: Path, environ: dict[str, str]) -> None:
    command = [sys.executable, "-m", "milabench", "gc", "--remove", "--base", str(base)]
    pipes: dict[str, Any] = {"stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    with contextlib.ExitStack() as held:
        held.enter_context(hold_base(base, "install", say=print))
        with started(command, env=environ, cwd=ROOT, **pipes) as process:
            assert process.stderr is not None
            assert "is held by `install` of" in process.stderr.readline()
            assert (base / "code" / "unused-1").exists()
            held.close()
            process.communicate(timeout=CEILING_S)
    assert process.returncode == 0
    assert not (base / "code" / "unused-1").exists()


def test_a_definition_that_was_just_fetched_is_in_use(
    base: Path, milabench: Callable[..., Said], environ: dict[str, str], tmp_path: Path
) -> None:
    repository = tmp_path / "theirs"
    shutil.copytree(ROOT / "tests" / "suite" / "odd", repository)
    for words in ("init -q -b main", "add .", "-c user.name=a -c user.email=a@b commit -q -m a"):
        subprocess.run(["git", *words.split()], cwd=repository, check=True)
    suite = tmp_path / "theirs.yaml"
    suite.write_text(
        f"theirs: {{definition: {{git: '{repository}', branch: main}}, install_variant: unpinned, argv: [good],"
        " container: {engine: docker, image: mine}}\n"
    )
    docker = fake_docker(tmp_path, environ)
    argv = [sys.executable, "-m", "milabench", "install", "--use-current-env", "--config", str(suite)]
    with started([*argv, "--base", str(base)], env=environ, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        until((docker / "begun").exists, "the image to be fetched")
        removed = json.loads(milabench("gc", "--remove", "--json", "--base", str(base)).out)["removed"]
        (docker / "go").touch()
        said = process.communicate(timeout=CEILING_S)[1]
    assert process.returncode == 0, said
    assert str(base / "code" / "unused-1") in removed
    assert (base / "code" / "theirs-main" / "benchfile.py").exists()


@pytest.fixture
def of_nobody() -> Iterator[Path]:
    """A base that belongs to a user without rights, where he can reach it."""
    if os.geteuid() != 0:
        pytest.skip("only root makes files of other users")
    folder = Path(tempfile.mkdtemp(prefix="milabench-gc-"))
    folder.chmod(0o755)
    suite = folder / "suite.yaml"
    suite.write_text("{}")
    base = filled(folder / "base", suite)
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 65534, 65534, follow_symlinks=False)
    yield base
    shutil.rmtree(folder)


# Its other modules are read before it becomes that user, who may not read them.
AS_NOBODY = """\
import getpass, os, sys
from pathlib import Path
from milabench.garbage.base_survey import Policy
from milabench.garbage.collection import collect_garbage
from milabench.workflow.options import CollectingReporter, Session
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
print(*collect_garbage(Path(sys.argv[1]), Policy(), Session(CollectingReporter()))[1].failures, sep="\\n")
"""


def collect_as_nobody(base: Path) -> subprocess.CompletedProcess[str]:
    """Collect garbage as the user without rights, with a copy of milabench: the checkout may be below a private folder."""
    copy = base.parent / "copy"
    ignored = shutil.ignore_patterns("__pycache__", "tests")
    shutil.copytree(ROOT / "orchestrator" / "milabench", copy / "milabench", ignore=ignored)
    shutil.copytree(ROOT / "benchmate", copy / "milabench" / "shipped" / "benchmate", ignore=ignored)
    return subprocess.run(
        [sys.executable, "-c", AS_NOBODY, base],
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
        cwd=copy,
    )


def test_a_suite_that_may_not_be_looked_at_is_not_gone(of_nobody: Path) -> None:
    private = of_nobody.parent / "private"
    private.mkdir(mode=0o700)
    (private / "suite.yaml").write_text("{}")
    record = of_nobody / "suites.json"
    record.write_text(json.dumps({"schema": 1, "suites": [{**USED, "config": str(private / "suite.yaml")}]}))
    done = collect_as_nobody(of_nobody)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
    assert (of_nobody / "venv/.store/torch-0123456789abcdef").exists()
    assert (of_nobody / "data/a").exists()
    assert not (of_nobody / "data/gone").exists()


def test_what_holds_files_of_another_user_is_left_whole_with_one_line(of_nobody: Path) -> None:
    theirs = of_nobody / "data" / "gone" / "of root"
    theirs.mkdir()
    (theirs / "file").touch()
    done = collect_as_nobody(of_nobody)
    assert done.stdout.splitlines() == [f"{of_nobody / 'data' / 'gone'}: {theirs / 'file'} belongs to another user"], (
        done.stderr
    )
    assert (theirs / "file").exists()
    assert not (of_nobody / "code" / "unused-1").exists()


def test_data_that_a_command_uses_are_kept(milabench: Callable[..., Said], base: Path) -> None:
    with hold_in_use({str(data_lock(base / "data", "gone")): "data/gone"}):
        assert "data/gone" not in unused(milabench("gc", "--json", "--base", str(base)))
        assert milabench("gc", "--remove", "--base", str(base)).code == 0
        assert (base / "data" / "gone").exists()
    assert milabench("gc", "--remove", "--base", str(base)).code == 0
    assert not (base / "data" / "gone").exists()


def test_a_use_that_is_recorded_while_it_removes_is_seen(base: Path) -> None:
    survey = survey_base(base, Policy())
    (item,) = (item for item in survey.unused if item.path.name == "gone")
    is_unused = still_unused(base, survey, Policy(), ())
    assert is_unused(item)
    record = json.loads((base / "suites.json").read_text())
    record["suites"][0]["data"].append("gone")
    replace_file(base / "suites.json", json.dumps(record).encode())
    assert not is_unused(item)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a disk")
def test_what_is_mounted_inside_is_left_with_all_that_it_is_mounted_in(
    milabench: Callable[..., Said], base: Path
) -> None:
    with disk(base / "data" / "gone" / "shared", "1m") as shared:
        (shared / "train.tar").write_text("mine")
        said = milabench("gc", "--remove", "--base", str(base))
        assert (said.code, said.err.startswith("gc: 2 removed")) == (0, True), said.err
        assert (shared / "train.tar").read_text() == "mine"
