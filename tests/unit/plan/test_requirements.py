from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milabench.plan.requirements import (
    Lock,
    Pin,
    broken_constraints,
    disagreements,
    git_requirements,
    lacking,
    merge_locks,
    named_index,
    parse_requirements,
    preferred_versions,
    render_requirements,
    unbroken_constraints,
    with_absolute_paths,
    with_commits,
    with_overrides,
)

LOCK = """\
# python: 3.11
# variant: cpu
# a remark
numpy==2.4.6 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
torch==2.13.0+cpu ; sys_platform == "linux" --hash=sha256:cc  # a remark
"""


def pin(name: str, version: str, *hashes: str, marker: str = "") -> Pin:
    line = f"{name}=={version}" + (f" ; {marker}" if marker else "")
    return Pin(line=line, name=name, version=version, marker=marker, hashes=hashes)


def test_a_lock_is_read_with_its_header_hashes_and_markers() -> None:
    torch = pin("torch", "2.13.0+cpu", "sha256:cc", marker='sys_platform == "linux"')
    assert parse_requirements(LOCK) == Lock(
        pins=(pin("numpy", "2.4.6", "sha256:aa", "sha256:bb"), torch), header={"python": "3.11", "variant": "cpu"}
    )


def test_a_lock_is_hashed_only_when_every_pin_is() -> None:
    assert parse_requirements(LOCK).is_hashed
    assert not parse_requirements(LOCK + "click==8.1.7\n").is_hashed
    assert not parse_requirements("").is_hashed


def test_a_range_is_a_requirement_without_a_version() -> None:
    assert parse_requirements("numpy>=1.26,<3\nx==1.*\n").pins == (
        Pin(line="numpy>=1.26,<3", name="numpy"),
        Pin(line="x==1.*", name="x"),
    )


def test_options_and_addresses_are_kept() -> None:
    lock = parse_requirements("--find-links wheels\nhttps://example.org/a-1.whl#sha256=12\n")
    assert lock.options == ("--find-links wheels",)
    assert lock.pins == (Pin(line="https://example.org/a-1.whl#sha256=12", name=""),)


NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=8)
PINS = st.builds(
    lambda name, version, hashes: pin(name, ".".join(map(str, version)), *sorted(hashes)),
    NAMES,
    st.lists(st.integers(0, 99), min_size=1, max_size=3),
    st.sets(st.text("0123456789abcdef", min_size=4, max_size=8).map("sha256:{}".format), max_size=3),
)


@given(st.lists(PINS, max_size=6), st.sampled_from(["3.11", "3.12"]))
def test_what_is_written_is_read_back(pins: list[Pin], python: str) -> None:
    lock = Lock(pins=tuple(pins), header={"python": python})
    assert parse_requirements(render_requirements(lock)) == lock


def test_merging_unites_the_hashes_of_equal_pins() -> None:
    merged = merge_locks(
        [
            parse_requirements("a==1 --hash=sha256:11\n"),
            parse_requirements("a==1 --hash=sha256:22\nb==2 --hash=sha256:33\n"),
        ]
    )
    assert merged.pins == (pin("a", "1", "sha256:11", "sha256:22"), pin("b", "2", "sha256:33"))


def test_two_versions_of_one_package_disagree_unless_their_markers_differ() -> None:
    assert list(disagreements(parse_requirements("a==1\nb==1\n"), parse_requirements("a==2\nb==1\n"))) == [
        (pin("a", "1"), pin("a", "2"))
    ]
    assert (
        list(
            disagreements(
                parse_requirements("a==1 ; os_name == 'nt'\n"), parse_requirements("a==2 ; os_name == 'posix'\n")
            )
        )
        == []
    )


@pytest.mark.parametrize(
    ("constraint", "is_broken"), [("torch==2.13.0", False), ("torch<2.13", True), ("numpy<1", False)]
)
def test_a_constraint_without_local_version_allows_any_build(constraint: str, is_broken: bool) -> None:
    assert (
        bool(list(broken_constraints(parse_requirements("torch==2.13.0+cpu\n"), parse_requirements(constraint))))
        is is_broken
    )


def test_what_an_environment_lacks_is_named_with_what_it_has() -> None:
    lock = parse_requirements("a==1\nb==2\nc>=3\nd==1 ; sys_platform == 'win32'\nE_f==1\n")
    found = lacking(lock, {"a": "1", "c": "2.9", "e-f": "1"}, {"sys_platform": "linux"})
    assert [(each.line, version) for each, version in found] == [("b==2", None), ("c>=3", "2.9")]


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("line", "url", "rev", "fragment"),
    [
        ("a @ git+https://example.org/o/a.git@50a2b8f", "https://example.org/o/a.git", "50a2b8f", ""),
        ("git+https://example.org/o/a@feature/x#egg=a", "https://example.org/o/a", "feature/x", "egg=a"),
        ("-e git+ssh://git@example.org/o/a.git", "ssh://git@example.org/o/a.git", "", ""),
        ("a @ git+https://me:pw@example.org/a@v1 ; python_version > '3'", "https://me:pw@example.org/a", "v1", ""),
        ("git+file:///srv/a#subdirectory=b", "file:///srv/a", "", "subdirectory=b"),
    ],
)
def test_a_git_repository_that_may_move_is_named_by_its_commit(line: str, url: str, rev: str, fragment: str) -> None:
    (git,) = git_requirements(f"# git+https://example.org/no\nnumpy\n{line}\n")
    assert (git.url, git.rev, git.fragment, git.is_pinned) == (url, rev, fragment, False)
    (pinned,) = git_requirements(fixed := with_commits(line, {git.text: COMMIT}))
    assert (pinned.url, pinned.rev, pinned.fragment, pinned.is_pinned) == (url, COMMIT, fragment, True)
    assert fixed.replace(f"@{COMMIT}", "") == line.replace(f"@{rev}" if rev else "\0", "")


def test_overrides_take_the_place_of_what_a_lock_says_of_the_same_packages() -> None:
    lock = parse_requirements("voir==0.2.20\nnumpy==1\nptera==1.4.1\n")
    changed = with_overrides(lock, ["voir==0.2.24", "torchcompat==1.1.4"])
    assert [each.line for each in changed.pins] == ["numpy==1", "ptera==1.4.1", "voir==0.2.24", "torchcompat==1.1.4"]
    assert with_overrides(lock, []) == lock


def test_what_asks_for_a_version_itself_is_not_constrained_to_another() -> None:
    constraints = "# torch-backend: cpu\ntorch==2.13.0\njax==0.10.2\nnumpy<3\nx==2\n"
    wanted = parse_requirements("torch==2.4.0\njax\nnumpy==4\nx @ git+https://example.org/x\n")
    assert unbroken_constraints(constraints, wanted) == "jax==0.10.2\nnumpy<3\n"


def test_relative_paths_of_a_requirement_file_are_those_of_its_folder() -> None:
    text = "-e ./own\n--find-links wheels\n../beside\n--find-links https://example.org/x\n-f /abs\nnumpy  # ./no\n\nx\n"
    assert with_absolute_paths(text, "/d") == (
        "-e /d/own\n--find-links /d/wheels\n/d/../beside\n--find-links https://example.org/x\n-f /abs\nnumpy  # ./no\n\nx\n"
    )


@pytest.mark.parametrize(
    ("option", "index"),
    [
        ("--extra-index-url https://example.org/simple", "https://example.org/simple"),
        ("--index-url=https://example.org/simple", "https://example.org/simple"),
        ("-f wheels", "wheels"),
        ("--trusted-host example.org", None),
        ("--pre", None),
    ],
)
def test_the_indexes_that_options_name(option: str, index: str | None) -> None:
    assert named_index(option) == index


def test_the_versions_of_a_lock_for_other_machines_are_those_of_what_is_named_and_built_for_any() -> None:
    wanted = parse_requirements("gymnax\ntorch\nnumpy>=1\n")
    lock = parse_requirements("gymnax==0.0.9\ntorch==2.10.0+cu130\nnumpy==2.2.6\nscipy==1\n")
    assert preferred_versions(wanted, lock) == "gymnax==0.0.9\nnumpy==2.2.6\n"
