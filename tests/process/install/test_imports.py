"""What an environment that was just built cannot import is found when it is installed, with the benchmark that requires it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from milabench.execute.install_session import Installed
from milabench.execute.inventory import is_linked, store_folder
from milabench.execute.shims import shims_of
from milabench.plan.venvs import VenvSpec
from milabench.workflow.requirement_files import required_packages
from tests.commands import Said
from tests.process.cli.conftest import environ, milabench  # noqa: F401
from tests.process.cli.installable import installable
from tests.process.install.places import Place, wheel

# As torchvision does beside another torch than the one that it was built for.
VISION = """
import tool
if tool.__version__ != "1":
    raise RuntimeError("operator tool::nms does not exist")
"""
# What torchvision does of its own, and the part of torch that it needs for that: the registry of operators.
TORCHVISION = """
import torch
if not hasattr(torch.ops.torchvision, "nms"):
    raise RuntimeError("operator torchvision::nms does not exist")
"""
TORCH = """
class ops: torchvision = type("namespace", (), {})()
class library:
    class Library:
        def __init__(self, name, kind): self.name = name
        def define(self, schema): setattr(getattr(ops, self.name), schema.partition("(")[0], schema)
"""
DRIVER = 'raise ImportError("libcuda.so.1: cannot open shared object file: No such file or directory")\n'


def installed(
    place: Place, *pins: str, required: tuple[str, ...] | None, variant: str = "cpu", devices: tuple[str, ...] = ()
) -> Installed:
    spec = place.spec(place.lock(*pins), required=required, variant=variant)
    (outcome,) = place.install(spec, devices=devices)
    assert is_linked(place.dirs, spec) == (not outcome.why), outcome
    return outcome


def test_a_library_that_does_not_fit_another_one_is_one_line(place: Place) -> None:
    wheel(place.wheels, "vision", "1", needs=("tool",), content=VISION)
    outcome = installed(place, "tool==2", "vision==1", required=("tool", "vision"))
    assert outcome.why == (
        "vision, which b requires, cannot be imported: RuntimeError: operator tool::nms does not exist. Let the versions in "
        "requirements.in fit each other, and lock them with `milabench pin --select b`"
    )
    assert outcome.log is not None
    assert "Traceback" in outcome.log.read_text()
    assert not installed(place, "tool==1", "vision==1", required=("tool", "vision")).why
    assert any("imported in" in line for line in place.said)


def test_only_what_the_benchmark_names_is_imported(place: Place) -> None:
    wheel(place.wheels, "broken", "1", content="raise RuntimeError('when imported')\n")
    wheel(place.wheels, "user", "1", needs=("broken",))
    assert not installed(place, "broken==1", "user==1", required=("user",)).why


def test_what_has_nothing_to_import_is_a_note(place: Place) -> None:
    data = {"7data-stubs/__init__.pyi": "", "tests/__init__.py": "raise RuntimeError('for its authors')\n"}
    wheel(place.wheels, "7data", "1", more=data, content="raise RuntimeError('no name of a module')\n")
    outcome = installed(place, "7data==1", required=("7data",))
    assert not outcome.why
    assert outcome.notes == ("7data was not imported: it has no module",)


def test_a_benchmark_that_does_not_say_what_it_requires_is_a_note(place: Place) -> None:
    outcome = installed(place, "tool==1", required=None)
    assert not outcome.why
    assert outcome.notes == (
        "nothing was imported for b: they have no requirements.in, which lists the packages to import",
    )
    assert not installed(place, "tool==1", required=()).notes


def test_a_crash_is_told_with_its_signal(place: Place) -> None:
    wheel(place.wheels, "crash", "1", content="import os\nos.kill(os.getpid(), 11)\n")
    why = installed(place, "crash==1", "tool==1", required=("crash", "tool")).why
    assert "crash, which b requires, cannot be imported: the process ended with SIGSEGV" in why


def test_a_package_that_prints_and_exits_is_told_too(place: Place) -> None:
    wheel(place.wheels, "loud", "1", content="import sys\nprint('hello', end='')\nsys.exit('needs a licence')\n")
    assert "cannot be imported: SystemExit: needs a licence" in installed(place, "loud==1", required=("loud",)).why


def test_a_driver_that_is_not_here_fails_no_environment_for_an_accelerator(place: Place) -> None:
    wheel(place.wheels, "kernels", "1", content=DRIVER)
    outcome = installed(place, "kernels==1", required=("kernels",), variant="cuda")
    assert not outcome.why
    assert outcome.notes[0].startswith(
        "kernels could not be tried without an accelerator's driver: ImportError: libcuda"
    )
    assert "libcuda.so.1" in installed(place, "kernels==1", required=("kernels",)).why


def test_on_a_machine_with_such_a_device_a_missing_driver_fails_the_environment(place: Place) -> None:
    wheel(place.wheels, "kernels", "1", content=DRIVER)
    outcome = installed(place, "kernels==1", required=("kernels",), variant="cuda", devices=("cuda",))
    assert "kernels, which b requires, cannot be imported: ImportError: libcuda.so.1" in outcome.why


def test_a_requirement_that_the_lock_lacks_is_a_note(place: Place) -> None:
    outcome = installed(place, "tool==1", required=("tool", "forgotten"))
    assert not outcome.why
    assert outcome.notes == ("forgotten is required by b and not in the lock. Write it again with `milabench pin`",)


def with_torchvision(place: Place, *, needs: str = "torchvision", variant: str = "cpu") -> tuple[VenvSpec, Installed]:
    wheel(place.wheels, "torch", "1", content=TORCH)
    wheel(place.wheels, "torchvision", "1", needs=("torch",), content=TORCHVISION)
    wheel(place.wheels, "models", "1", needs=("torchvision",), content="import torchvision\n")
    spec = place.spec(place.lock("torch==1", "torchvision==1", "models==1"), required=(needs,), variant=variant)
    (outcome,) = place.install(spec)
    return spec, outcome


@pytest.mark.parametrize("needs", ["torchvision", "models", "torch"])
def test_operators_that_torchvision_lacks_beside_a_cpu_torch_are_stood_in_for_and_said(
    place: Place, needs: str
) -> None:
    spec, outcome = with_torchvision(place, needs=needs)
    assert not outcome.why
    assert [note for note in outcome.notes if "operators of torchvision (nms, roi_align and others) raise" in note]
    folder = store_folder(place.dirs, spec)
    assert shims_of(str(folder)) == ("torchvision",)
    # To look for it must not import torch: others do that while they are imported themselves.
    look = "import importlib.util as u, sys; u.find_spec('torchvision'); assert 'torch' not in sys.modules; import torchvision"
    subprocess.run([folder / "bin" / "python", "-I", "-c", look], check=True)


def test_no_other_environment_gets_a_shim(place: Place) -> None:
    _, outcome = with_torchvision(place, variant="cuda")
    assert "torchvision, which b requires, cannot be imported: RuntimeError: operator torchvision::nms" in outcome.why
    wheel(place.wheels, "vision", "1", needs=("tool",), content=VISION)
    assert "operator tool::nms" in installed(place, "tool==2", "vision==1", required=("tool", "vision")).why
    plain = place.spec(place.lock("tool==1"), required=("tool",))
    place.install(plain)
    assert shims_of(str(store_folder(place.dirs, plain))) == ()
    assert not list(store_folder(place.dirs, plain).rglob("*milabench*shim*"))


def test_install_ends_with_exit_code_4_and_run_refuses(
    milabench: Callable[..., Said],  # noqa: F811
    environ: dict[str, str],  # noqa: F811
    tmp_path: Path,
) -> None:
    here, variables, _ = installable(tmp_path, environ["MILABENCH_BASE"])
    environ.update(variables)
    wheel(tmp_path / "wheels", "tool", "2")
    wheel(tmp_path / "wheels", "vision", "1", needs=("tool",), content=VISION)
    (tmp_path / "timed" / "requirements.in").write_text("vision\n")
    said = milabench("install", *here)
    assert said.code == 4
    (line,) = [line for line in said.err.splitlines() if line.startswith("error: ")]
    assert line.startswith(
        "error: timed: vision, which timed requires, cannot be imported: RuntimeError: operator tool::nms"
    )
    assert "not installed" in milabench("run", *here).err


def test_what_a_requirement_file_includes_is_required_too(tmp_path: Path) -> None:
    (tmp_path / "a.in").write_text("-r sub/b.in\njax[cuda12]==0.10.2\n--index-url https://host/simple\n-r missing.in\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.in").write_text(
        "-r ../a.in\nNumPy>=2 ; python_version > '3'\npywin32 ; sys_platform == 'win32'\n"
    )
    assert required_packages(tmp_path / "a.in") == ("jax", "numpy")
    assert required_packages(tmp_path / "none.in") is None
    (tmp_path / "later.in").write_text("later ; python_version >= '3.99'\n")
    assert required_packages(tmp_path / "later.in") == ()
    assert required_packages(tmp_path / "later.in", "3.99") == ("later",)
