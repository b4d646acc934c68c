"""Runs the tests of several folders, and what failed once more; counts what was retried, and allows only so much of it.

The last line says what is not installed and how many tests were skipped for want of it.

    python tests/run_parts.py [--retries N] FOLDER 'PYTEST ARGUMENTS' [FOLDER 'PYTEST ARGUMENTS']...

Ends with 0 when every test passed, at first or alone, and with 1 when one failed twice, or more than N failed over all folders.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

PASSED, FAILED, NONE_SELECTED = 0, 1, 5  # pytest's exit codes


def run_tests(folder: str, arguments: list[str], cache: Path) -> int:
    """Run pytest in the folder and return its exit code; `cache` is where it notes what failed."""
    print(f"== {folder}: pytest {shlex.join(arguments)}", flush=True)
    command = [sys.executable, "-m", "pytest", *arguments, "-o", f"cache_dir={cache}", f"--junitxml={cache}.xml"]
    return subprocess.run(command, cwd=folder, check=False).returncode


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


def main(words: list[str]) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--retries", type=int, default=0, metavar="N")
    parser.add_argument("parts", nargs="+", metavar="FOLDER ARGUMENTS")
    options = parser.parse_args(words)
    retried: list[str] = []
    has_failed = False
    missing = Counter[str]()
    with tempfile.TemporaryDirectory(prefix="pytest-cache-") as scratch:
        for index, (folder, text) in enumerate(zip(options.parts[::2], options.parts[1::2], strict=True)):
            arguments, cache = shlex.split(text), Path(scratch, str(index))
            code = run_tests(folder, arguments, cache)
            missing += not_installed(Path(f"{cache}.xml"))
            failed = last_failed(cache)
            if code == FAILED and len(retried) + len(failed) <= options.retries:
                retried += [f"{folder}/{test}" for test in failed]
                code = run_tests(folder, [*arguments, "-n", "0", "--last-failed"], cache)
            elif code == FAILED and options.retries:
                print(
                    f"not retried: {len(failed)} failed, {len(retried)} before; at most {options.retries} are retried"
                )
            has_failed |= code not in (PASSED, NONE_SELECTED)
    if options.retries:
        print(f"retried: {len(retried)}{''.join(f'{chr(10)}  {test}' for test in retried)}")
    if missing:
        print(
            f"not tested, not installed: {'; '.join(f'{name} ({count} tests)' for name, count in missing.most_common())}"
        )
    return FAILED if has_failed else PASSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
