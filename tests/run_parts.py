"""Runs the tests of several folders, and what failed once more; counts what was retried, and allows only so much of it.

The last line says what is not installed and how many tests were skipped for want of it.

    python tests/run_parts.py [OPTIONS] FOLDER 'PYTEST ARGUMENTS' [FOLDER 'PYTEST ARGUMENTS']...

Ends with 0 when every test passed, at first or alone, and with 1 when one failed twice, or more than N failed over all folders.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO
from xml.etree import ElementTree

from part_progress import Progress

_CHILD = f"import sys; sys.path.append({str(Path(__file__).parent)!r}); from part_progress import main; main()"
_LOOK_S, _SAY_S = 0.2, 15.0
_TO_TELL = 20  # tests of a part that have ended before its rate is believed
PASSED, FAILED, NONE_SELECTED = 0, 1, 5  # pytest's exit codes


@dataclass
class Part:
    """A folder, pytest's arguments, and the cache in which pytest notes what failed."""

    folder: str
    arguments: list[str]
    cache: Path

    def start(self, output: TextIO | None) -> subprocess.Popen[str]:
        """Start pytest; its output goes to the file, or to ours."""
        options = ["-o", f"cache_dir={self.cache}", f"--junitxml={self.cache}.xml"]
        command = [sys.executable, "-c", _CHILD, str(self.progress), *self.arguments, *options]
        return subprocess.Popen(command, cwd=self.folder, stdout=output, stderr=output, text=True)

    @property
    def progress(self) -> Path:
        return self.cache.with_suffix(".progress")

    @property
    def title(self) -> str:
        return f"== {self.folder}: pytest {shlex.join(self.arguments)}"


def run_parts(parts: Sequence[Part], *, together: bool) -> list[int]:
    """Run the parts, one after another or all at once, and return their exit codes; say how far they are meanwhile."""
    groups = [parts] if together else [[part] for part in parts]
    return [code for group in groups for code in _run_at_once(group)]


def _run_at_once(parts: Sequence[Part]) -> list[int]:
    last, running = "", {}
    with contextlib.ExitStack() as stack:
        for part in parts:
            output = stack.enter_context(part.cache.with_suffix(".output").open("w+"))
            running[part.start(output)] = part, output
        codes: dict[int, int] = {}
        said_at = time.monotonic()
        while running:
            time.sleep(_LOOK_S)
            for process in [process for process in running if process.poll() is not None]:
                part, output = running.pop(process)
                codes[id(part)] = process.wait()
                output.seek(0)
                print(f"{part.title}\n{output.read()}", flush=True)
            if time.monotonic() - said_at >= _SAY_S:
                said_at, line = time.monotonic(), progress_line(parts, time.monotonic())
                if line != last:
                    print(line, flush=True)
                last = line
    return [codes[id(part)] for part in parts]


def progress_line(parts: Sequence[Part], now_s: float) -> str:
    """Return how many tests of how many are done, and the time that the slowest part still takes at its rate so far."""
    numbers = [Progress.read(part.progress) for part in parts]
    done, total, failed = (sum(getattr(each, name) for each in numbers) for name in ("done", "total", "failed"))
    lefts = [(now_s - each.begun_s) * (each.total - each.done) / each.done for each in numbers if each.done >= _TO_TELL]
    left = f", about {max(lefts) / 60:.0f} min left" if len(lefts) == len(parts) else ""
    return f"{done} of {total} tests done, {failed} failed{left}"


def last_failed(cache: Path) -> list[str]:
    """The tests that failed when this cache was last used."""
    notes = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(notes.read_text())) if notes.is_file() else []


def not_installed(report: Path) -> Counter[str]:
    """What a report of pytest names as not installed, with the number of tests that were skipped for want of it."""
    reasons = (
        [each.get("message", "") for each in ElementTree.parse(report).iter("skipped")] if report.is_file() else []
    )
    around = r".*not installed: (apt-get install )?|(the )?(package|extra) | (is|are) not installed.*"
    return Counter(re.sub(around, "", reason) for reason in reasons if "not installed" in reason)


def durations(reports: Sequence[Path]) -> str:
    """Return a line for each file of tests: its seconds, its number of tests and its name; the slowest first."""
    seconds, counts = Counter[str](), Counter[str]()
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase") if report.is_file() else ():
            name = case.get("classname", "")
            seconds[name] += float(case.get("time", 0))
            counts[name] += 1
    lines = (f"{spent:9.1f} {counts[name]:6} {name}\n" for name, spent in seconds.most_common())
    return f"{seconds.total():9.1f} {counts.total():6} all\n{''.join(lines)}"


def main(words: list[str]) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--retries", type=int, default=0, metavar="N")
    parser.add_argument("--together", action="store_true", help="run all parts at once")
    parser.add_argument("--durations", type=Path, metavar="FILE", help="write the seconds of each file of tests")
    parser.add_argument("parts", nargs="+", metavar="FOLDER ARGUMENTS")
    options = parser.parse_args(words)
    retried: list[str] = []
    has_failed = False
    missing = Counter[str]()
    with tempfile.TemporaryDirectory(prefix="pytest-cache-") as scratch:
        parts = [
            Part(folder, shlex.split(text), Path(scratch, str(index)))
            for index, (folder, text) in enumerate(zip(options.parts[::2], options.parts[1::2], strict=True))
        ]
        codes = run_parts(parts, together=options.together)
        for part, first_code in zip(parts, codes, strict=True):
            code = first_code
            missing += not_installed(Path(f"{part.cache}.xml"))
            failed = last_failed(part.cache)
            if code == FAILED and len(retried) + len(failed) <= options.retries:
                retried += [f"{part.folder}/{test}" for test in failed]
                print(part.title, flush=True)
                code = replace(part, arguments=[*part.arguments, "-n", "0", "--last-failed"]).start(None).wait()
            elif code == FAILED and options.retries:
                print(
                    f"not retried: {len(failed)} failed, {len(retried)} before; at most {options.retries} are retried"
                )
            has_failed |= code not in (PASSED, NONE_SELECTED)
        if options.durations:
            options.durations.parent.mkdir(parents=True, exist_ok=True)
            options.durations.write_text(durations([Path(f"{part.cache}.xml") for part in parts]))
    if options.retries:
        print(f"retried: {len(retried)}{''.join(f'{chr(10)}  {test}' for test in retried)}")
    if missing:
        print(
            f"not tested, not installed: {'; '.join(f'{name} ({count} tests)' for name, count in missing.most_common())}"
        )
    return FAILED if has_failed else PASSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
