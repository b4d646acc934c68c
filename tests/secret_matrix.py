"""Where the secrets of a run are found again: a canary from each source, looked for in everything that is written."""

from __future__ import annotations

import base64
import contextlib
import json
import sqlite3
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

import yaml

from tests.commands import ROOT, Said
from tests.processes import until

PROGRAM = ROOT / "tests" / "programs" / "says_secrets.py"
CONTROL = "none: a plain name"
PEM = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAcanary13\nQyNTUxOQAAACBcanary13+/=\n"
# A canary for each source; the control stands under a name of nothing secret, and is found.
SOURCES = {
    "--override, dotted": "canary-01-dotted",
    "--override, mapping": "canary 02 mapping",
    "--override, benchmark": "canary-03-whole",
    "--override, glob": "canary-04-every",
    "env: of a benchmark": "canary\"05's/b&nch",
    "env: of a template": "canary-06-template",
    "env: of *": "canary-07-every",
    "oc.env in a command": "canary-08-oc-env",
    "oc.env in an argument": "canary-09-argument",
    "environment": "canary-10-environ",
    "user info of a URL": "canary-11-url@/x",
    "option of a command": "canary-12-option",
    "key of several lines": PEM,
    "settings of pip": "canary-14-pip-index",
    CONTROL: "canary-15-plain",
}
OF_FILES = {
    "manifest.json": "manifest",
    "journal.jsonl": "journal",
    "summary.json": "summary",
    "orchestrator.log": "log",
    ".data": "records",
    ".stdout": "output",
    ".stderr": "output",
}
# The step's own command line, and what it inherits, are not said by us.
OF_NAMES = (
    *("MYTOKEN", "MYSQL_PWD", "SSH_PASSPHRASE", "X_PWD", "OPENAI_API_KEY", "TEMPLATE_SECRET", "AZURE_STORAGE_KEY"),
    *("DATABASE_URL", "DEPLOY_KEY"),
)


class Sinks:
    """What was written, by the kind of place."""

    def __init__(self) -> None:
        self.texts: dict[str, list[bytes]] = defaultdict(list)

    def add(self, sink: str, *texts: str | bytes) -> None:
        """Look there too."""
        self.texts[sink] += [text.encode() if isinstance(text, str) else text for text in texts]

    def add_folder(self, folder: Path, other: str) -> None:
        """Look into every file of a folder, and into its name."""
        for path in sorted(folder.rglob("*")):
            self.add(other, str(path.relative_to(folder)))
            if path.is_file():
                sink = OF_FILES.get(path.name) or OF_FILES.get(path.suffix) or other
                self.add(sink, path.read_bytes())

    def counts(self) -> dict[str, dict[str, int]]:
        """How often each source's canary is found in each sink."""
        return {
            source: {sink: sum(found_in(canary, text) for text in texts) for sink, texts in self.texts.items()}
            for source, canary in SOURCES.items()
        }


def found_in(canary: str, text: bytes) -> int:
    """How often a canary is in a text, in one of the forms in which it is said."""
    count = 0
    for line in canary.splitlines():
        # Of user and password in base64, what no neighbour changes.
        encoded = base64.b64encode(f"user:{line}".encode()).decode()[8:-4]
        forms = {line, json.dumps(line)[1:-1], repr(line)[1:-1], quote(line), quote(line, safe=""), encoded}
        forms |= {json.dumps(form)[1:-1] for form in forms}
        count += sum(text.count(form.encode()) for form in forms)
    return count


def table(counts: Mapping[str, Mapping[str, int]]) -> str:
    """The matrix for a person: a row for each source, a column for each sink."""
    sinks = list(next(iter(counts.values())))
    width = max(map(len, counts)) + 1
    lines = [" " * width + "  ".join(sinks)]
    for source, row in counts.items():
        lines.append(source.ljust(width) + "  ".join(str(row[sink]).rjust(len(sink)) for sink in sinks))
    return "\n".join(lines)


def write_suite(folder: Path) -> Path:
    """A suite of two benchmarks, of which one fails, with a canary in each place that a suite has."""
    command = [sys.executable, str(PROGRAM), "--password", SOURCES["option of a command"]]
    said = ["--say", SOURCES["option of a command"], "${oc.env:CI_TOKEN}", "${oc.env:WEB_SECRET}"]
    path = folder / "secrets.yaml"
    url = f"https://user:{quote(SOURCES['user info of a URL'], safe='')}@host/db"
    own = {
        "OPENAI_API_KEY": SOURCES["env: of a benchmark"],
        "DATABASE_URL": url,
        "DEPLOY_KEY": PEM,
        "A_SHORT_TOKEN": "abc",
    }
    described = {"inherits": "_base", "env": own, "argv": {"--access-token": "${oc.env:WEB_SECRET}"}}
    pip = {"extra-index-url": f"https://user:{SOURCES['settings of pip']}@127.0.0.1:9/simple"}
    suite = {
        "profile": "quick",
        "_base": {"max_duration": 60, "pip": pip, "env": {"TEMPLATE_SECRET": SOURCES["env: of a template"]}},
        "*": {"env": {"AZURE_STORAGE_KEY": SOURCES["env: of *"]}},
        "says": {**described, "command": [*command, *said]},
        "fails": {**described, "command": [*command, "--fail", *said]},
    }
    path.write_text(yaml.safe_dump(suite))
    return path


def overrides() -> list[str]:
    """Those that give a secret, in each form that an override has."""
    given = [
        f"says.env.MYTOKEN={SOURCES['--override, dotted']}",
        f"fails.env.MYTOKEN={SOURCES['--override, dotted']}",
        f"says.env={{MYSQL_PWD: '{SOURCES['--override, mapping']}'}}",
        f'fails={{"env": {{"MYSQL_PWD": "{SOURCES["--override, mapping"]}"}}}}',
        f"says={{env: {{SSH_PASSPHRASE: {SOURCES['--override, benchmark']}}}}}",
        f"fails={{env: {{SSH_PASSPHRASE: {SOURCES['--override, benchmark']}}}}}",
        f"*.env.X_PWD={SOURCES['--override, glob']}",
        f"*.env.MODE={SOURCES[CONTROL]}",
    ]
    return [word for text in given for word in ("--override", text)]


def search(milabench: Callable[..., Said], folder: Path, base: Path, environ: dict[str, str]) -> Sinks:
    """Run every command that shows or writes something of a suite with secrets; return what they wrote.

    `base` gets the runs; what is below `folder / "nodes"` is of other nodes.
    """
    suite = write_suite(folder)
    ps = folder / "ps"
    environ |= {
        "CI_TOKEN": SOURCES["oc.env in a command"],
        "WEB_SECRET": SOURCES["oc.env in an argument"],
        "MYAPIKEY": SOURCES["environment"],
        "MILABENCH_CONFIG": str(suite),
        "MILABENCH_USE_CURRENT_ENV": "1",
    }
    names = [*OF_NAMES, *(["MYAPIKEY"] if "MILABENCH_SYSTEM" not in environ else [])]
    given = [
        *overrides(),
        "--override",
        f"*.env.SECRET_NAMES='{','.join(names)}'",
        "--override",
        f"*.env.SEEN_IN_PS={ps}",
    ]
    out = folder / "out"
    out.mkdir()
    sinks = Sinks()

    def said(sink: str, code: int, *argv: str) -> Said:
        answer = milabench(*argv)
        assert answer.code == code, (argv, answer)
        sinks.add(sink, answer.out, answer.err)
        return answer

    for argv in (["show"], ["explain", "says.env.MYTOKEN", "says.env", "says.argv", "says.command"], ["check"]):
        said("config", 0, "config", *argv, *given)
    said("plan", 0, "plan", "run", *given)
    said("plan", 0, "plan", "run", "--json", *given)
    said("plan", 0, "plan", "install", "--json", *given)
    for wrong in ("says.env.MYTOKEN=[", "none.env.MYTOKEN=", "says.env.MYTOKEN.x.y=", "says.nothing.MYTOKEN="):
        bad = ["run", "--override", wrong + SOURCES["--override, dotted"]]
        said("errors", 2, *bad)
    said("errors", 2, "run", "--override", f"none.env.MODE={SOURCES[CONTROL]}")
    shown = [sys.executable, "-m", "milabench", "--traceback", "run", *given, "--override", "says.env.MYTOKEN.x=1"]
    traceback = subprocess.run(shown, env=environ, cwd=ROOT, capture_output=True, check=False)
    assert b"Traceback" in traceback.stderr
    sinks.add("errors", traceback.stdout, traceback.stderr)
    said("terminal", 1, "run", *given, "--run-name", "night", "--display", "plain")
    said("terminal", 0, "dev", "says", *given, "--", "true")
    said("terminal", 0, "run", *given, "--run-name", "away", "--detach")
    until(lambda: '"verdict"' in next(base.glob("runs/away.*/journal.jsonl")).read_text())
    assert "records keep none" in said("errors", 6, "resume", "night").err
    said("report", 0, "report", "night")
    for form in ("text", "markdown", "json", "html", "csv", "junit"):
        said("report", 0, "report", "night", "--format", form, "-o", str(out / f"report.{form}"))
    said("report", 3, "compare", "night", "away", "--format", "html", "-o", str(out / "compare.html"))
    for argv in (
        ["runs", "--json"],
        ["status", "night", "--json"],
        ["replay", "night"],
        ["logs", "says"],
        ["logs", "fails"],
    ):
        answer = milabench(*argv)
        sinks.add("terminal", answer.out, answer.err)
    said("bundle", 0, "bundle", "night", "-o", str(out / "night.zip"))
    with zipfile.ZipFile(out / "night.zip") as bundle:
        sinks.add("bundle", *(bundle.read(name) for name in bundle.namelist()), *bundle.namelist())
    said("store", 0, "db", "add", "night")
    for file in base.glob("*.sqlite*"):
        with contextlib.closing(sqlite3.connect(file)) as store:
            sinks.add("store", *store.iterdump())
    sinks.add_folder(out, "report")
    sinks.add_folder(base, "files")
    sinks.add_folder(folder / "home", "files")
    if (folder / "nodes").is_dir():
        sinks.add_folder(folder / "nodes", "nodes")
    looked = [json.loads(line) for line in ps.read_text().splitlines()]
    # Every source had its say, in all runs.
    assert {value for each in looked for value in each["said"]} >= set(SOURCES.values()) - {
        *(SOURCES[name] for name in ("environment", "settings of pip", CONTROL)),
    }
    sinks.add("ps", *(json.dumps(each["seen"], ensure_ascii=False) for each in looked))
    return sinks
