from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from milabench.errors import EnvironmentFailed
from milabench.execute.install_session import Installed
from milabench.execute.inventory import is_linked, store_folder
from tests.process.install.places import Index, Place, wheel
from tests.processes import end_of, started


def says(path: Path, code: str) -> str:
    done = subprocess.run([path / "bin" / "python", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def ready(outcome: Installed) -> Installed:
    assert not outcome.why, outcome
    return outcome


def broken(outcome: Installed) -> Installed:
    assert outcome.why, outcome
    return outcome


def test_a_lock_becomes_a_compiled_environment_with_the_instruments_behind_a_link(place: Place) -> None:
    spec = place.spec(place.lock("tool==1"))
    (outcome,) = place.install(spec)
    assert ready(outcome).is_new
    link = place.base / "venv" / "g"
    assert link.is_symlink()
    assert link.resolve() == store_folder(place.dirs, spec)
    assert says(link, "import benchmate, tool; print(tool.__version__)") == "1"
    assert list(link.glob("lib/python*/site-packages/tool/__pycache__/*.pyc"))
    said = json.loads((link / ".complete").read_text())
    assert (said["digest"], list(said["locks"])) == (spec.digest, ["b/requirements.cpu.txt"])


def test_a_second_install_starts_no_program(place: Place) -> None:
    spec = place.spec(place.lock("tool==1"))
    place.install(spec)
    (outcome,) = place.install(spec, uv="/no/such/program")
    assert not ready(outcome).is_new


def test_another_lock_is_another_environment_and_the_link_follows(place: Place) -> None:
    first, second = place.spec(place.lock("tool==1")), place.spec(place.lock("tool==2"))
    place.install(first)
    place.install(second)
    link = place.base / "venv" / "g"
    assert says(link, "import tool; print(tool.__version__)") == "2"
    assert says(store_folder(place.dirs, first), "import tool; print(tool.__version__)") == "1"
    (outcome,) = place.install(first, uv="/no/such/program")
    assert not ready(outcome).is_new
    assert link.resolve() == store_folder(place.dirs, first)


def test_one_environment_that_fails_does_not_keep_the_others_from_being_built(place: Place) -> None:
    bad = place.spec("nosuch==1 --hash=sha256:" + "0" * 64 + "\n", group="bad")
    good = place.spec(place.lock("tool==1"), group="good")
    failed, built = place.install(bad, good)
    assert broken(failed).why == "requirement nosuch does not exist on the configured indexes"
    assert ready(built).is_new
    assert not (place.base / "venv" / "bad").exists()
    log = broken(failed).log
    assert log
    assert "nosuch" in log.read_text()
    assert str(failed).startswith("bad: requirement nosuch does not exist")


def test_a_file_with_another_hash_is_not_installed(place: Place) -> None:
    spec = place.spec(re.sub("(?<=^tool==1 --hash=sha256:).{4}", "0000", place.lock("tool==1")))
    (outcome,) = place.install(spec)
    assert "is not in the lock" in broken(outcome).why
    assert not is_linked(place.dirs, spec)
    assert not store_folder(place.dirs, spec).exists()


def test_what_an_interrupted_install_left_is_built_anew(place: Place) -> None:
    spec = place.spec(place.lock("tool==1"))
    place.install(spec)
    folder = store_folder(place.dirs, spec)
    (folder / ".complete").unlink()
    (folder / "left-over").touch()
    (outcome,) = place.install(spec)
    assert ready(outcome).is_new
    assert not (folder / "left-over").exists()


def test_force_builds_anew_what_is_complete(place: Place) -> None:
    spec = place.spec(place.lock("tool==1"))
    place.install(spec)
    (store_folder(place.dirs, spec) / "altered").touch()
    (outcome,) = place.install(spec, force=True)
    assert ready(outcome).is_new
    assert not (store_folder(place.dirs, spec) / "altered").exists()


def test_two_installs_at_once_build_it_once(place: Place) -> None:
    spec = place.spec(place.lock("tool==1"))
    outcomes: list[Installed] = []
    threads = [threading.Thread(target=lambda: outcomes.extend(place.install(spec))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ready(outcome).is_new for outcome in outcomes) == [False, True]


def test_what_is_not_pinned_is_resolved_under_the_constraints_and_follows_them_on_update(place: Place) -> None:
    spec = place.spec("tool\n", variant="unpinned", constraints="tool<2\n")
    place.install(spec)
    assert says(place.base / "venv" / "g", "import tool; print(tool.__version__)") == "1"
    (kept,) = place.install(spec)
    (updated,) = place.install(spec, update=True)
    assert (ready(kept).is_new, ready(updated).is_new) == (False, True)


def test_a_warm_cache_is_enough_without_any_index(place: Place, index: Index) -> None:
    pip = {"index-url": index.url}
    place.install(place.spec(place.lock("tool==1"), group="first", pip=pip))
    index.stop()
    (outcome,) = place.install(place.spec(place.lock("tool==1"), group="second", pip=pip))
    assert ready(outcome).is_new


def test_a_cold_cache_without_an_index_is_one_clear_line_without_credentials(place: Place) -> None:
    pip = {"index-url": "http://somebody:hunter2@127.0.0.1:9/simple"}
    (outcome,) = place.install(place.spec(place.lock("tool==1"), pip=pip))
    failed = broken(outcome)
    assert failed.why.startswith("cannot reach http://")
    assert "\n" not in failed.why
    assert failed.log
    assert "hunter2" not in failed.why + failed.log.read_text() + repr(place.said)


def test_what_is_kept_of_an_environment_holds_no_credentials(place: Place) -> None:
    spec = place.spec("--extra-index-url https://me:pass-word-1@127.0.0.1:9/simple\n" + place.lock("tool==1"))
    (installed,) = place.install(spec)
    assert not installed.why, installed
    kept = [path for path in Path(place.dirs.venv).rglob("*") if path.is_file() and not path.is_symlink()]
    assert [path for path in kept if b"pass-word-1" in path.read_bytes()] == []
    assert any(b"https://***@127.0.0.1" in path.read_bytes() for path in kept)


def test_a_lock_without_what_the_instruments_need_is_refused(place: Place) -> None:
    (outcome,) = place.install(place.spec(place.lock("tool==1").splitlines()[0] + "\n"))
    assert "benchmate cannot be imported: ModuleNotFoundError: No module named 'voir'" in broken(outcome).why


def test_a_cpu_environment_never_pulls_the_cuda_build(place: Place) -> None:
    wheel(place.wheels, "torch", "1", needs=("nvidia-runtime",))
    wheel(place.wheels, "nvidia-runtime", "9")
    (outcome,) = place.install(place.spec("torch==1\nvoir\n"))
    assert "would pull CUDA packages (nvidia-runtime==9) into a cpu environment" in broken(outcome).why
    assert "cannot be reached. Using the configured indexes" in repr(place.said)


def test_locks_for_a_python_that_is_not_here_are_tried_with_ours_and_that_is_said(place: Place) -> None:
    (outcome,) = place.install(place.spec("# python: 3.99\n" + place.lock("tool==1")))
    assert "for python 3.99, which was not found" in ready(outcome).notes[0]


def test_a_folder_in_the_place_of_the_link_is_left_alone(place: Place) -> None:
    (place.base / "venv" / "g").mkdir(parents=True)
    (outcome,) = place.install(place.spec(place.lock("tool==1")))
    assert "exists where a link" in broken(outcome).why
    assert (place.base / "venv" / "g").is_dir()


def test_a_base_that_cannot_be_written_says_which_option_to_give(place: Place) -> None:
    place.base.write_text("a file")
    with pytest.raises(EnvironmentFailed, match=r"cannot be created: .*. Choose another folder with --base"):
        place.install(place.spec(place.lock("tool==1")))


def test_instruments_that_changed_are_installed_anew(place: Place) -> None:
    place.install(place.spec(place.lock("tool==1")))
    (place.benchmate / "src" / "benchmate" / "__init__.py").write_text("import voir\nchanged = 'yes'\n")
    (outcome,) = place.install(place.spec(place.lock("tool==1")))
    assert ready(outcome).is_new
    assert says(place.base / "venv" / "g", "import benchmate; print(benchmate.changed)") == "yes"


INTERRUPTED = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from milabench.execute.interrupts import Interrupts
from milabench.execute.activities import Activities
from milabench.execute.install_session import InstallOptions
from milabench.execute.venv import install_venvs
from milabench.plan.context import dirs_under
from milabench.plan.requirements import RequirementFile
from milabench.plan.venvs import VenvRequest, plan_venvs
file = RequirementFile(name="r", text="x==1")
request = VenvRequest(bench="b", group="g", variant="cpu", requirements=(file,))
python = "%d.%d" % sys.version_info[:2]
specs = plan_venvs([request], benchmate="0" * 64, python=python, platform="p")
options = InstallOptions(benchmate="/none", environ={{"PATH": "/usr/bin:/bin"}}, pip={{}}, uv={uv!r})
Interrupts().take_over()
try:
    install_venvs(specs, dirs_under({base!r}, {{}}), options, Activities())
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_an_interrupt_ends_what_was_started_and_leaves_nothing_that_counts(
    place: Place, root: Path, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    fake = tmp_path / "uv"
    fake.write_text(f"#!/bin/sh\necho $$ > {begun}\nexec sleep 600\n")
    fake.chmod(0o755)
    program = INTERRUPTED.format(root=str(root), uv=str(fake), base=str(place.base))
    with started([sys.executable, "-c", program], process_group=0) as child:
        pid = int(begun.read_text())
        child.send_signal(signal.SIGINT)
        assert end_of(child) == 130
    assert not Path(f"/proc/{pid}").exists()
    assert not list((place.base / "venv" / ".store").glob("*/.complete"))


@pytest.mark.e2e
def test_without_uv_pip_gives_the_same_environment(place: Place) -> None:
    (outcome,) = place.install(place.spec(place.lock("tool==1")), uv=None)
    assert ready(outcome).is_new
    assert says(place.base / "venv" / "g", "import benchmate, tool; print(tool.__version__)") == "1"
