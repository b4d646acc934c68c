from __future__ import annotations

import pytest

from milabench.execute.installer import InstallFiles, Pip, Uv, explain_failure, pulls_cuda, unbuilt_package
from milabench.plan.requirements import RequirementFile
from milabench.plan.venvs import VenvSpec


def spec(text: str, variant: str = "cpu") -> VenvSpec:
    return VenvSpec(
        group="g",
        variant=variant,
        python="3.11",
        platform="linux-x86_64",
        benches=("a",),
        requirements=(RequirementFile(name="a.txt", text=text),),
        constraints=None,
        benchmate="bm",
    )


HASHED = "torch==2.13.0+cpu --hash=sha256:11\n"


def attempts(
    text: str, *, reachable: bool, variant: str = "cpu", upgrade: bool = False
) -> list[tuple[str, dict[str, str]]]:
    uv = Uv(path="uv", is_reachable=lambda _: reachable)
    made = uv.install(spec(text, variant), "/v", InstallFiles(requirements="/r.txt", constraints="/c.txt"), upgrade)
    return [(" ".join(each.argv), dict(each.env)) for each in made]


def test_a_hashed_lock_is_looked_for_in_the_cache_first() -> None:
    sync = "uv pip sync --python /v/bin/python --compile-bytecode --require-hashes /r.txt"
    cpu = {"UV_TORCH_BACKEND": "cpu"}
    assert attempts(HASHED, reachable=True) == [(f"{sync} --offline", {}), (f"{sync} --offline", cpu), (sync, cpu)]
    assert attempts(HASHED, reachable=False)[-1] == (sync, {})


def test_what_is_not_hashed_is_resolved_under_the_constraints() -> None:
    install = "uv pip install --python /v/bin/python --compile-bytecode"
    assert attempts("numpy\n", reachable=True) == [(f"{install} --requirements /r.txt --constraints /c.txt", {})]
    assert attempts("numpy\n", reachable=True, upgrade=True) == [
        (f"{install} --upgrade --refresh --requirements /r.txt --constraints /c.txt", {})
    ]


@pytest.mark.parametrize(
    ("text", "variant", "reachable", "rehearses"),
    [
        ("torch==2.13.0\n", "cpu", False, True),
        ("torch==2.13.0\n", "cpu", True, False),
        ("torch==2.13.0\n", "cuda", False, False),
        (HASHED, "cpu", False, False),
        ("numpy\n", "cpu", False, False),
    ],
)
def test_only_an_open_cpu_environment_without_torchs_index_is_rehearsed(
    text: str, variant: str, reachable: bool, rehearses: bool
) -> None:
    uv = Uv(path="uv", is_reachable=lambda _: reachable)
    assert (
        any(each.rehearse for each in uv.install(spec(text, variant), "/v", InstallFiles(requirements="/r.txt"), False))
        is rehearses
    )


def test_a_rehearsal_names_the_first_cuda_package() -> None:
    assert pulls_cuda("Would install 2 packages\n + numpy==2\n + nvidia-cublas==13.1\n") == "nvidia-cublas==13.1"
    assert pulls_cuda(" + numpy==2\n") is None
    assert pulls_cuda(" + nvidia-ml-py==13.590.44\n") is None  # without libraries of CUDA


def test_pip_is_given_the_hashes_and_torchs_index() -> None:
    pip = Pip(python="py", is_reachable=lambda _: True)
    (attempt,) = pip.install(spec(HASHED), "/v", InstallFiles(requirements="/r.txt"), False)
    assert attempt.argv[-2:] == ("--require-hashes", "--no-deps")
    assert attempt.env == {"PIP_EXTRA_INDEX_URL": "https://download.pytorch.org/whl/cpu/"}


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (
            "error: No solution found when resolving dependencies\n  cause: Because nosuch was not found in the "
            "package registry and you require nosuch==1, we can conclude that your requirements are unsatisfiable.",
            "requirement nosuch does not exist on the configured indexes",
        ),
        (
            "error: No solution found when resolving dependencies\n  cause: Because there is no version of "
            "click==8.1.777 and you require click==8.1.777, we can conclude that your requirements are unsatisfiable.",
            "requirement click==8.1.777 does not exist on the configured indexes",
        ),
        (
            "error: Failed to download `click==8.1.7`\n  cause: Hash mismatch for `click==8.1.7`\n\n   Expected:\n",
            "click==8.1.7: the hash of the index's file is not in the lock. Nothing was installed from it",
        ),
        (
            "error: No solution found when resolving dependencies\n  cause: Because click was not found in the cache "
            "and you require click==8.1.7, we can conclude that your requirements are unsatisfiable.",
            "the network cannot be reached and the cache does not hold click",
        ),
        (
            "error: Request failed after 3 retries in 8.1s\n  cause: Failed to fetch: https://pypi.invalid/simple/click/\n"
            "  cause: client error (Connect)\n  cause: dns error\n",
            "cannot reach https://pypi.invalid/simple/click/, and the cache does not hold everything. "
            "Check the network or the index of `pip config`",
        ),
        (
            "error: Failed to install: torch.whl\n  cause: failed to copy: No space left on device (os error 28)\n",
            "no space left on the disk",
        ),
        (
            "error: Failed to initialize cache at `/home/x/.cache/uv`\n"
            "  cause: failed to create directory `/home/x/.cache/uv`: Permission denied (os error 13)\n",
            "/home/x/.cache/uv: cannot create the cache of uv. Set UV_CACHE_DIR to another folder",
        ),
        (
            "error: Failed to install: x.whl\n  cause: failed to create `/base/venv/x`: Read-only file system (os error 30)\n",
            "/base/venv/x: no write permission",
        ),
        (
            "ERROR: No matching distribution found for nosuch==1\n",
            "requirement nosuch==1 does not exist on the configured indexes, at least not for this platform and Python",
        ),
        (
            "error: No solution found when resolving dependencies\n  cause: Because tool==1 has no wheels with a matching "
            "platform tag (e.g., `manylinux_2_36_x86_64`) and you require tool==1, we can conclude that your requirements are "
            "unsatisfiable.",
            "tool==1: it has no file for this platform and Python (manylinux_2_36_x86_64). Choose another version, or lock it "
            "for this machine",
        ),
        (
            "error: Request failed\n  cause: Failed to fetch: http://host/simple/voir/\n  cause: HTTP status client error (407 "
            "Proxy Authentication Required) for url (http://host/simple/voir/)\n",
            "http://host/simple/voir/: the server answers 407 Proxy Authentication Required. Check the proxy or the index of "
            "`pip config`",
        ),
        (
            "ERROR: Could not install requirement tool==1 from http://host/tool.whl because of HTTP error 403 Client Error: "
            "Forbidden for url: http://host/tool.whl for URL http://host/tool.whl\n",
            "http://host/tool.whl: the server answers 403. Check the proxy or the index of `pip config`",
        ),
        (
            "error: Failed to download `tool==1`\n  cause: Failed to extract archive: tool-1-py3-none-any.whl\n",
            "tool-1-py3-none-any.whl: the answer is not a package, perhaps the page of a proxy. Check the network or the "
            "index of `pip config`",
        ),
        (
            "error: No solution found when resolving dependencies\n  cause: Because new==1 requires Python >=3.99 and only "
            "new==1 is available, we can conclude that all versions of new cannot be used.",
            "new==1 requires python >=3.99, and the environment has another version. Choose a version of the package that fits",
        ),
        (
            "error: Failed to build `scipy==1`\n  cause: The build backend returned an error\n"
            "   ../meson.build:1:0: ERROR: Unknown compiler(s): [['cc'], ['gcc']]\n",
            "scipy==1 has to be compiled, and a compiler is not installed. Install it, or choose a version with a wheel for this "
            "Python",
        ),
        (
            "The virtual environment was not created successfully because ensurepip is not available.  On Debian\n",
            "this Python cannot make environments. Install its venv package, or uv",
        ),
        ("error: something new\n  cause: and why\n", "something new: and why"),
        ("just this\n", "just this"),
        ("", "no error message"),
    ],
)
def test_complaints_become_one_line(output: str, line: str) -> None:
    assert explain_failure(output) == line


@pytest.mark.parametrize(
    ("output", "package"),
    [
        ("  × Failed to build `torch-scatter==2.1.2`\n  ├─▶ The build backend returned an error\n", "torch-scatter"),
        ("error: Failed to build `torchtune @ git+https://example.org/t.git@main`\n", "torchtune"),
        ("error: No solution found when resolving dependencies\n", None),
    ],
)
def test_the_package_that_could_not_be_built(output: str, package: str | None) -> None:
    assert unbuilt_package(output) == package
