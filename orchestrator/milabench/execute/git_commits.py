"""Resolves the git repositories that requirements name to commits: once, for all nodes and all later installations."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace

from milabench.errors import EnvironmentFailed
from milabench.events.atomic_write import replace_file
from milabench.execute.install_session import InstallOptions, make_folder
from milabench.execute.inventory import commits_file, read_marker
from milabench.execute.sources import git_environment, without_credentials
from milabench.plan.context import Dirs
from milabench.plan.requirements import GitRequirement, RequirementFile
from milabench.plan.venvs import VenvSpec
from milabench.redaction import mask
from milabench.shown import last_line


def with_known_commits(specs: Sequence[VenvSpec], dirs: Dirs, options: InstallOptions) -> tuple[VenvSpec, ...]:
    """Return environments in which every git repository has a commit: as recorded next to the environment, else from git now.

    Commits from git are recorded. With `update`, unpinned commits are asked for again. Raises EnvironmentFailed for
    commits that cannot be resolved, with the file, the line and a hint.
    """
    return tuple(_with_commits(spec, dirs, options) if spec.moving else spec for spec in specs)


def _with_commits(spec: VenvSpec, dirs: Dirs, options: InstallOptions) -> VenvSpec:
    record = commits_file(dirs, spec)
    is_known = not (options.update and not spec.is_pinned)
    recorded = read_marker(record) if is_known else {}
    spec = replace(spec, commits={text: str(commit) for text, commit in recorded.items()})
    if not spec.moving:
        return spec
    resolved = {git.text: _commit_of(git, file, options.environ) for file, git in spec.moving}
    spec = replace(spec, commits={**spec.commits, **resolved})
    make_folder(record.parent)
    replace_file(record, json.dumps(dict(spec.commits), indent=1).encode())
    return spec


def _commit_of(git: GitRequirement, file: RequirementFile, environ: Mapping[str, str]) -> str:
    """Return the commit of a branch, a tag, the beginning of a hash or, by default, the default branch."""
    number = next((at for at, line in enumerate(file.text.splitlines(), 1) if git.text in line), 0)
    where = f"{file.name}:{number}: {mask(git.text)}"
    program = shutil.which("git", path=environ.get("PATH"))
    if program is None:
        raise EnvironmentFailed(f"{where}: git is not installed. Install it: it reads which commit this is")
    env = git_environment(environ)
    url = without_credentials(git.url, env)

    def ask(*argv: str) -> str:
        done = subprocess.run(
            [program or "git", *argv], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            why = mask(last_line(done.stderr, "git printed no error"))
            raise EnvironmentFailed(
                f"{where}: cannot be resolved to a commit: {why}. Write the full commit after the @, or install where "
                "the repository can be reached"
            )
        return done.stdout

    listed = [line.split("\t") for line in ask("ls-remote", url).splitlines()]
    commits = {name: commit for commit, name in listed}
    # An annotated tag is an object of its own: ^{} is the commit that it names.
    names = (f"refs/heads/{git.rev}", f"refs/tags/{git.rev}^{{}}", f"refs/tags/{git.rev}", git.rev or "HEAD")
    if commit := next((commits[name] for name in names if name in commits), None):
        return commit
    if set(git.rev) - set("0123456789abcdef") or len(git.rev) < 4:
        raise EnvironmentFailed(f"{where}: the repository has no branch or tag {git.rev!r}")
    with tempfile.TemporaryDirectory(prefix="milabench-") as folder:
        # The history alone, without any file.
        ask("clone", "--quiet", "--bare", "--filter=tree:0", url, folder)
        return ask("-C", folder, "rev-parse", "--verify", f"{git.rev}^{{commit}}").strip()
