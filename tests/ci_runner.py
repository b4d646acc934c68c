"""Runs a composite action and a GitLab component on this machine, without a container: inputs, variables, files, exit codes.

Of the two formats it knows what the project's own use: anything else is an error, not a silent difference.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
ACTION = ROOT / "action.yml"
COMPONENT = ROOT / "templates" / "milabench" / "template.yml"
_EXPRESSION = re.compile(r"\$\{\{\s*([\w.-]+)\s*\}\}")
_INTERPOLATION = re.compile(r"\$\[\[\s*inputs\.([\w-]+)\s*\]\]")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True)
class Job:
    """What a job came to: exit code, log, outputs, summary."""

    code: int
    log: str
    outputs: Mapping[str, str] = field(default_factory=dict)
    summary: str = ""


def run_action(workspace: Path, environ: Mapping[str, str], **inputs: str) -> Job:
    """Run the action's steps as a runner does, in `workspace`; a step that fails ends it. `-` in names is `_` here."""
    action = yaml.safe_load(ACTION.read_text())
    assert action["runs"]["using"] == "composite"
    given = {name.replace("_", "-"): value for name, value in inputs.items()}
    assert given.keys() <= action["inputs"].keys()
    values = {
        f"inputs.{name}": given.get(name, declared.get("default", "")) for name, declared in action["inputs"].items()
    }
    temp = workspace.parent / f"{workspace.name}.temp"
    temp.mkdir(exist_ok=True)
    summary = temp / "summary"
    log, code = "", 0
    for number, step in enumerate(action["runs"]["steps"]):
        assert step.keys() <= {"name", "id", "shell", "env", "run"}, step
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "a script with an input in it is another script"
        output = temp / f"output{number}"
        files = {"GITHUB_OUTPUT": output, "GITHUB_STEP_SUMMARY": summary, "GITHUB_ENV": temp / "env"}
        for file in files.values():
            file.touch()
        script = temp / f"step{number}.sh"
        script.write_text(step["run"])
        env = {name: _EXPRESSION.sub(lambda match: values[match[1]], text) for name, text in step["env"].items()}
        here = {"GITHUB_ACTIONS": "true", "GITHUB_ACTION_PATH": str(ROOT), "RUNNER_TEMP": str(temp)}
        # As the documentation of `shell: bash` says.
        done = _run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            workspace,
            {**environ, **here, **{name: str(path) for name, path in files.items()}, **env},
        )
        log, code = log + done.stdout, done.returncode
        for line in output.read_text().splitlines():
            name, _, value = line.partition("=")
            values[f"steps.{step.get('id')}.outputs.{name}"] = value
        if code != 0:
            break
    outputs = {
        name: _EXPRESSION.sub(lambda match: values.get(match[1], ""), declared["value"])
        for name, declared in action["outputs"].items()
    }
    return Job(code=code, log=log, outputs=outputs, summary=summary.read_text())


def component(**inputs: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the component's declared inputs and its jobs, with these inputs in them; `-` in names is `_` here."""
    head, body = COMPONENT.read_text().split("\n---\n")
    declared = yaml.safe_load(head)["spec"]["inputs"]
    given = {name.replace("_", "-"): value for name, value in inputs.items()}
    assert given.keys() <= declared.keys()
    values = {name: given.get(name, (about or {}).get("default")) for name, about in declared.items()}
    assert None not in values.values(), "an input without a default has to be given"
    # In the text, before it is parsed: the stricter of the two ways in which it could be done.
    return declared, yaml.safe_load(_INTERPOLATION.sub(lambda match: values[match[1]], body))


def run_component(workspace: Path, environ: Mapping[str, str], **inputs: str) -> Job:
    """Run the component's job as a shell executor does, in `workspace`."""
    [(_, job)] = component(**inputs)[1].items()
    assert job.keys() <= {"stage", "image", "variables", "script", "artifacts"}, job
    assert not any("$[[" in line for line in job["script"])
    env = dict(environ)
    for name, variable in job["variables"].items():
        is_raw = isinstance(variable, dict) and not variable.get("expand", True)
        text = variable["value"] if isinstance(variable, dict) else variable
        env[name] = text if is_raw else _VARIABLE.sub(lambda match: environ.get(match[1] or match[2], ""), text)
    script = "\n".join(["set -eo pipefail", *job["script"]])
    done = _run(["bash", "-c", script], workspace, {**env, "GITLAB_CI": "true", "CI_PROJECT_DIR": str(workspace)})
    return Job(code=done.returncode, log=done.stdout)


def _run(argv: list[str], cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(argv, cwd=cwd, env=dict(env), text=True, errors="replace", check=False, **pipes)
