"""An index, a proxy or a package that does not serve this machine: one line, with what answers and the way out."""

from __future__ import annotations

import hashlib

import pytest

from tests.process.install.places import Place
from tests.process.install.slow_index import slow_index

PROGRAMS = ["uv", pytest.param("pip", marks=[pytest.mark.e2e, pytest.mark.long])]


def why(place: Place, requirement: str, program: str, pip: dict[str, str] | None = None) -> str:
    changes = {"uv": None} if program == "pip" else {}
    variant = "cpu" if "--hash" in requirement else "unpinned"
    (outcome,) = place.install(place.spec(requirement, variant=variant, pip=pip), pip=pip or {}, **changes)
    assert outcome.why, outcome
    assert "\n" not in outcome.why
    return outcome.why


@pytest.mark.e2e
@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    ("what", "status", "line"),
    [
        ("page", 200, "/tool/: the answer is a web page that lists no files, perhaps of a proxy that wants a login"),
        ("page", 403, "/tool/: the server answers 403"),
        ("page", 407, "/tool/: the server answers 407"),
        ("page", 511, "/tool/: the server answers 511"),
        ("file", 200, "tool"),
        ("file", 403, "-1-py3-none-any.whl: the server answers 403"),
    ],
)
def test_a_proxy_that_answers_a_web_page(place: Place, program: str, what: str, status: int, line: str) -> None:
    with slow_index(place.wheels) as index:
        index.instead[what] = status
        told = why(place, "tool==1\n", program, {"index-url": index.url})
    assert line in told
    if (what, status, program) == ("file", 200, "uv"):
        assert "the answer is not a package, perhaps the page of a proxy" in told


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize(
    "tag", ["py3-none-macosx_11_0_arm64", "py3-none-linux_aarch64", "cp39-cp39-manylinux_2_17_x86_64"]
)
@pytest.mark.parametrize("is_hashed", [True, False], ids=["locked", "unpinned"])
def test_a_wheel_for_another_platform(place: Place, program: str, tag: str, is_hashed: bool) -> None:
    wheel = (place.wheels / "tool-1-py3-none-any.whl").rename(place.wheels / f"tool-1-{tag}.whl")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    voir = next(line for line in place.lock().splitlines() if line.startswith("voir"))
    told = why(place, f"tool==1 --hash=sha256:{digest}\n{voir}\n" if is_hashed else "tool==1\n", program)
    assert told.startswith("tool==1: it has no file for this platform and Python") or told == (
        "requirement tool==1 does not exist on the configured indexes, at least not for this platform and Python"
    )
