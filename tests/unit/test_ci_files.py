"""The files for build servers are what the public schemas of the two formats, and the command that they call, allow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from milabench.cli.verbs import verbs
from tests.ci_runner import ACTION, COMPONENT, component

INPUTS_OF_THE_JOB = {"package", "job", "stage", "image"}


def schema_errors(schema: str, path: Path) -> str:
    """Return what the vendored schema of a format says of a file; nothing when it fits."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.slow
def test_the_action_fits_the_schema_of_actions(tmp_path: Path) -> None:
    assert schema_errors("vendor.github-actions", ACTION) == ""
    (tmp_path / "action.yml").write_text(ACTION.read_text().replace("using: composite", "using: nothing"))
    assert "using" in schema_errors("vendor.github-actions", tmp_path / "action.yml")


@pytest.mark.slow
def test_the_component_fits_the_schema_of_pipelines(tmp_path: Path) -> None:
    head, body = COMPONENT.read_text().split("\n---\n")
    for name, value in {"head": yaml.safe_load(head), "body": component(package="a b: '\"#$(x)")[1]}.items():
        (tmp_path / f"{name}.yml").write_text(json.dumps(value))
        assert schema_errors("vendor.gitlab-ci", tmp_path / f"{name}.yml") == ""
    (tmp_path / "bad.yml").write_text(body.replace("when: always", "when: nothing"))
    assert "when" in schema_errors("vendor.gitlab-ci", tmp_path / "bad.yml")


def options_of_ci() -> set[str]:
    command = verbs.get_command(click.Context(verbs), "ci")
    assert command is not None
    return {str(option.envvar) for option in command.params if isinstance(option, click.Option)}


def test_every_variable_that_the_files_set_is_an_option() -> None:
    action: dict[str, Any] = yaml.safe_load(ACTION.read_text())
    [job] = component(package="")[1].values()
    of_action = set(action["runs"]["steps"][1]["env"])
    assert of_action <= options_of_ci()
    assert set(job["variables"]) - {"MILABENCH_PACKAGE"} <= options_of_ci()
    assert set(job["variables"]) - {"MILABENCH_PACKAGE"} == of_action - {"MILABENCH_REPORTS"}


def test_both_have_the_same_inputs_with_the_same_words() -> None:
    action = yaml.safe_load(ACTION.read_text())["inputs"]
    declared = component(package="")[0]
    assert set(action) - INPUTS_OF_THE_JOB - {"reports"} == set(declared) - INPUTS_OF_THE_JOB
    for name in set(action) - INPUTS_OF_THE_JOB - {"reports"}:
        assert action[name] == declared[name]


def test_every_input_is_used() -> None:
    for path, prefix in ((ACTION, "${{ inputs."), (COMPONENT, "$[[ inputs.")):
        head = yaml.safe_load(path.read_text().split("\n---\n")[0])
        inputs = head["spec"]["inputs"] if "spec" in head else head["inputs"]
        assert [name for name in inputs if f"{prefix}{name} " not in path.read_text()] == []


@pytest.mark.parametrize("text", ["a: b", "'", '"', "#", "- x", "$HOME", "*", "{", "%"])
def test_an_input_of_the_component_reaches_its_variable_as_it_is(text: str) -> None:
    [job] = component(package="installed", select=text)[1].values()
    assert job["variables"]["MILABENCH_SELECT"] == {"value": text, "expand": False}
