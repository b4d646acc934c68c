"""What benchmarks of milabench 1.3 start beside their words: containers, secrets, and their own preparation on other machines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Said

Milabench = Callable[..., Said]

HEAD = """\
import os

from milabench.commands import DockerRunCommand, ListCommand, PackCommand
from milabench.pack import Package
from milabench.system import DockerConfig


class Own(Package):
    prepare_script = None

"""
CONTAINED = """\
    def build_run_plan(self):
        command = PackCommand(self, *self.argv)
        docker = self.config["system"].get("docker", {"executable": "podman", "image": "registry/image:1"})
        return DockerRunCommand(command, DockerConfig(**docker), "--privileged").use_stdout()
"""
TWO = """\
    def build_run_plan(self):
        inside = DockerRunCommand(PackCommand(self), DockerConfig(image="one"))
        return ListCommand(inside, PackCommand(self))
"""
TOKEN = """\
    def build_run_plan(self):
        os.environ["HF_TOKEN"] = os.environ["MILABENCH_HF_TOKEN"]
        return PackCommand(self, *self.argv).use_stdout()
"""
PREPARES = """\
    async def prepare(self):
        (self.dirs.data / "own").write_text("prepared")
        await super().prepare()
"""


class Own:
    """A suite of one benchmark, `own`, whose class has one method of its own."""

    def __init__(self, folder: Path, run: Milabench) -> None:
        self.folder = folder
        self._run = run

    def __call__(self, verb: str, method: str, *argv: str, keys: str = "", system: Any = None, **environ: str) -> Said:
        definition = self.folder / "definition"
        definition.mkdir(exist_ok=True)
        (definition / "benchfile.py").write_text(f"{HEAD}{method}\n\n__pack__ = Own\n")
        (definition / "main.py").write_text("import os\nprint('token', os.environ['HF_TOKEN'])\n")
        suite = self.folder / "suite.yaml"
        suite.write_text(
            f"system: {json.dumps(system or {'arch': 'cpu'})}\n"
            f"own: {{definition: definition, weight: 1.0, plan: {{method: njobs, n: 1}}{keys}}}\n"
        )
        return self._run(*verb.split(), "--config", str(suite), *argv, **environ)

    def steps(self, verb: str, method: str, keys: str = "", system: Any = None) -> list[dict[str, Any]]:
        """The planned steps; of a run, of one replicate."""
        argv = ("--json", *(("--repeat", "1") if verb == "plan run" else ()))
        said = self(verb, method, *argv, keys=keys, system=system)
        assert said.code == 0, said.err
        steps: list[dict[str, Any]] = json.loads(said.out)["steps"]
        return steps


FILLED = """\
    def make_env(self):
        return {**super().make_env(), "WORKERS": self.resolve_placeholder("{n_worker}")}
"""


@pytest.fixture
def own(tmp_path: Path, milabench: Milabench) -> Own:
    return Own(tmp_path, milabench)


def test_the_container_that_a_class_names_is_that_of_its_steps(own: Own) -> None:
    (step,) = own.steps("plan run", CONTAINED)
    assert (step["argv"][:2], step["container"]) == (["podman", "run"], "registry/image:1")
    assert "--privileged" in step["argv"][: step["argv"].index("registry/image:1")]


def test_what_the_suite_says_of_a_container_goes_first(own: Own) -> None:
    (step,) = own.steps("plan run", CONTAINED, ", container: {engine: docker, image: 'other:2', args: [--ipc=host]}")
    before = step["argv"][: step["argv"].index("other:2")]
    assert (before[0], "--ipc=host" in before, "--privileged" in before) == ("docker", True, False)
    (step,) = own.steps("plan run", CONTAINED, ", container: {engine: none}")
    assert step.get("container") is None


def test_placeholders_in_the_environment_of_a_class_are_filled_in(own: Own) -> None:
    (step,) = own.steps("plan run", FILLED, system={"arch": "cpu", "cpu_count": 6})
    assert step["env"]["WORKERS"] == "6"


def test_what_asks_for_more_machines_than_there_are_is_prepared_as_its_class_says(own: Own) -> None:
    few, many = (own.steps("plan prepare", FILLED + PREPARES, keys) for keys in ("", ", num_machines: 2"))
    keys = ("cwd", "argv")
    assert [{key: step[key] for key in keys} for step in few] == [{key: step[key] for key in keys} for step in many]
    assert [step["env"]["HF_HOME"] for step in few] == [step["env"]["HF_HOME"] for step in many]


@pytest.mark.parametrize(
    ("method", "system", "text"),
    [
        (TWO, {"arch": "cpu"}, "not the same for all processes"),
        (CONTAINED, {"arch": "cpu", "docker": {"executable": "lxc", "image": "x"}}, "unknown engine 'lxc'"),
    ],
)
def test_a_container_that_cannot_be_taken_over_is_told_with_the_way_out(
    own: Own, method: str, system: dict[str, Any], text: str
) -> None:
    said = own("plan run", method, system=system)
    assert (said.code, text in said.err) == (2, True)
    assert "Name it in the suite: `container: {engine: podman, image: NAME}`" in said.err


def test_a_token_that_a_benchfile_sets_is_shown_nowhere(own: Own, environ: dict[str, str]) -> None:
    secret = "hf_A7b9C1d3E5f7G9h1"
    for words in (("plan run", "--full"), ("plan run", "--json")):
        said = own(words[0], TOKEN, *words[1:], MILABENCH_HF_TOKEN=secret)
        assert said.code == 0, said.err
        assert "HF_TOKEN" in said.out
        assert secret not in said.out + said.err
    said = own("run", TOKEN, "--use-current-env", "--repeat", "1", "--profile", "quick", MILABENCH_HF_TOKEN=secret)
    written = [path for path in Path(environ["MILABENCH_BASE"]).glob("runs/**/*") if path.is_file()]
    texts = [path.read_text(errors="replace") for path in written]
    assert any("token ***" in text for text in texts), said.err
    assert not any(secret in text for text in (*texts, said.out, said.err))


def test_a_class_that_prepares_by_itself_does_so_on_another_machine_from_what_is_sent_there(own: Own) -> None:
    nodes = [
        {"name": "here", "ip": "127.0.0.1", "main": True},
        {"name": "there", "ip": "192.0.2.7", "user": "me", "base": "/far"},
    ]
    system = {"arch": "cpu", "nodes": nodes}
    steps = own.steps("plan prepare", PREPARES, ", num_machines: 2", system)
    scripts = {step["node"]: step["argv"][2] for step in steps}
    assert Path(scripts["here"]).is_file()
    assert scripts["there"] == "/far/definitions/milabench-compat13/child.py"


BROKEN = """\
    def make_env(self):
        return {"KEY": self.config["no such key"]}
"""


def test_config_check_tells_what_a_class_cannot_answer_as_a_plan_does(own: Own) -> None:
    refused = own("plan run", BROKEN)
    assert refused.code == 2
    assert "own: make_env: KeyError: 'no such key'" in refused.err
    checked = own("config check", BROKEN)
    assert checked.code == 2
    assert checked.err.splitlines() == [*refused.err.splitlines(), "error: 1 of 1 files cannot be used"]
    for keys, code in ((", enabled: false", 0), (", num_machines: 3", 2)):
        assert own("config check", BROKEN, keys=keys).code == code
    assert own("config check", "    pass").err == "1 file is valid\n"
