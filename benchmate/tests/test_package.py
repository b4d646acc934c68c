"""What importing costs, what the configuration means, and the demo."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys

import pytest

from benchmate.configuration import Measure, parse_config, read_config
from benchmate.errors import BenchmateError
from benchmate.summary_table import TaskTotals


def python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_benchmate_imports_nothing_heavy():
    names = ("torch", "numpy", "voir", "ptera", "giving", "json", "socket", "asyncio")
    code = f"import sys, benchmate; print([m for m in {names} if m in sys.modules])"
    assert python(code) == "[]\n"


def test_no_module_shadows_a_function_of_the_package():
    before = "before = {name for name, value in vars(benchmate).items() if callable(value)}"
    functions = "all(callable(getattr(benchmate, name)) for name in before)"
    code = f"import benchmate; {before}; print([benchmate.config() for _ in range(2)], {functions})"
    assert python(code) == "[{}, {}] True\n"


def test_the_default_profile_is_quick():
    assert read_config(None).measure == Measure(warmup_steps=5, warmup_s=1.0, window_steps=20, window_s=3.0)


def test_stop_and_skip_override_the_profile():
    config = parse_config({"measure": {"window_s": 30}, "voir": {"options": {"stop": "60", "skip": 2}}})
    assert config.measure == Measure(warmup_steps=2, warmup_s=0.0, window_steps=60, window_s=30.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "expected a JSON object"),
        ('{"measure": {"window_s": "x"}}', "measure.window_s: expected a number"),
    ],
)
def test_an_invalid_configuration_is_an_error_with_its_place(tmp_path, text, words):
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(BenchmateError, match=words) as caught:
        read_config(str(path))
    assert str(path) in str(caught.value)


def test_a_missing_configuration_is_a_usage_error(tmp_path):
    command = [sys.executable, "-m", "benchmate.run", "--config", str(tmp_path / "no.json"), "x.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"benchmate.run: {tmp_path / 'no.json'}: No such file")
    assert subprocess.run([sys.executable, "-m", "benchmate.run"], capture_output=True, check=False).returncode == 2


def test_the_rate_of_a_task_is_a_ratio_of_totals_not_a_mean_of_rates():
    totals = TaskTotals()
    begin_ns = 10**9
    for elapsed in (0.1, 0.1, 0.4):
        host_ns = round(elapsed * 1e9)
        totals.add({"units": "items/s", "n": 32, "elapsed": elapsed, "t0_ns": begin_ns, "host_ns": host_ns})
        begin_ns += host_ns
    assert totals.row("train") == ("train", "3", "0", "0.600", "160", "items/s", "100 ms")
    assert TaskTotals().row("train")[4:] == ("-", "", "-")


def test_the_demo_prints_a_table_of_rates():
    done = subprocess.run([sys.executable, "-m", "benchmate", "demo", "40"], capture_output=True, text=True, check=True)
    assert re.search(r"^train +35 +5 +[\d.]+ +[\d,.]+ +samples/s", done.stderr, re.M)
    assert "loss (train)" in done.stderr


def test_the_demo_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; import benchmate.demo as d; d.run_demo(30)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "train" in done.stderr


def test_an_unknown_command_is_a_usage_error():
    done = subprocess.run([sys.executable, "-m", "benchmate", "dmo"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_the_demo_observes_a_script_of_the_user_to_its_end(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, torch\n"
        "from torch.utils.data import DataLoader\n"
        "for batch in DataLoader(torch.ones(int(sys.argv[1]), 3), batch_size=2):\n"
        "    torch.nn.functional.cross_entropy(batch, torch.zeros(2, dtype=torch.long))\n"
        "print('done')\n"
    )
    command = [sys.executable, "-m", "benchmate", "demo", str(script), "400"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "done\n"
    assert "items/s" in done.stderr
    assert "loss (train): 1.09861" in done.stderr


@pytest.mark.parametrize("words", [["many"], ["no_such_script.py"], ["3", "4"]])
def test_a_usage_error_of_the_demo_says_what_it_expects(words):
    done = subprocess.run(
        [sys.executable, "-m", "benchmate", "demo", *words], capture_output=True, text=True, check=False
    )
    assert (done.returncode, "expected a number or an existing script" in done.stderr) == (2, True)
