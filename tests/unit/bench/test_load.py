from __future__ import annotations

from pathlib import Path

import pytest

from milabench import Benchmark, PyPI
from milabench.bench.load import OptionError, load_benchfile, with_options
from milabench.errors import ConfigError

IMPORT = "from milabench import Benchmark, Git, PyPI\n"


def benchfile(folder: Path, text: str) -> Path:
    (folder / "benchfile.py").write_text(IMPORT + text)
    return folder


def message(folder: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_benchfile(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_benchmark_of_the_file_comes_back(tmp_path: Path) -> None:
    source = f"PyPI('trl', '1.16.0', file='trl-1.16.0-py3-none-any.whl', sha256='{'0' * 64}')"
    benchfile(tmp_path, f"benchmark = Benchmark(source={source}, module='trl.scripts.sft')\n")
    expected = PyPI("trl", "1.16.0", file="trl-1.16.0-py3-none-any.whl", sha256="0" * 64)
    assert load_benchfile(tmp_path) == Benchmark(source=expected, module="trl.scripts.sft")


def test_loading_leaves_no_bytecode_and_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    benchfile(tmp_path, "print('hello')\nbenchmark = Benchmark(script='main.py')\n")
    load_benchfile(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["benchfile.py"]
    assert capsys.readouterr().out == ""


def test_a_missing_folder_and_a_missing_file_are_told_apart(tmp_path: Path) -> None:
    assert "no-bench: no such folder" in message(tmp_path / "no-bench")
    assert "benchfile.py: no such file" in message(tmp_path)


def test_a_syntax_error_is_named_with_its_line(tmp_path: Path) -> None:
    assert "benchfile.py:2:" in message(benchfile(tmp_path, "benchmark = = 1\n"))


def test_an_exception_in_the_file_is_named_with_its_line(tmp_path: Path) -> None:
    assert "benchfile.py:3: ZeroDivisionError" in message(benchfile(tmp_path, "a = 0\nb = 1 / a\n"))


def test_a_file_that_exits_is_an_error(tmp_path: Path) -> None:
    assert "benchfile.py:2: SystemExit: 3" in message(benchfile(tmp_path, "raise SystemExit(3)\n"))


def test_an_unknown_field_is_an_error(tmp_path: Path) -> None:
    assert "unexpected keyword argument 'skript'" in message(benchfile(tmp_path, "benchmark = Benchmark(skript='x')\n"))


def test_a_missing_or_foreign_benchmark_says_what_to_write(tmp_path: Path) -> None:
    assert "defines no `benchmark`. Write `benchmark = Benchmark(...)`" in message(benchfile(tmp_path, "bench = 1\n"))
    assert "`benchmark` is a dict" in message(benchfile(tmp_path, "benchmark = {}\n"))


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ("", "exactly one of `script` and `module`"),
        ("script='a.py', module='a'", "exactly one of `script` and `module`"),
        ("script='../a.py'", "benchmark.script: expected a path inside the folder, got '../a.py'"),
        ("script='/a.py'", "benchmark.script: expected a path inside the folder"),
        (
            "module='a.{trainer}', options={'model': 1}",
            "benchmark.module: {trainer} is none of its options. Known: model",
        ),
        ("script='{}.py'", "benchmark.script: {} is none of its options. Known: none"),
        (
            "module='a.{trainer', options={'trainer': 'sft'}",
            "benchfile.py: benchmark.module: a { without its partner in 'a.{trainer'. An option stands in it as {NAME}. Known: ",
        ),
        ("script='trainer}.py'", "benchmark.script: a } without its partner in 'trainer}.py'"),
        ("script='a.py', voirfile='{{a}.py', options={'a': 'b'}", "benchmark.voirfile: a { without its partner"),
        (
            "script='a.py', requirements='../locks'",
            "benchfile.py: benchmark.requirements: no such folder: ../locks. Make it, with a requirements.in, or name one that",
        ),
        ("script='a.py', requirements='benchfile.py'", "benchmark.requirements: no such folder: benchfile.py"),
        ("script='a.py', requirements='../../locks'", "next to it (../NAME), got '../../locks'"),
        ("script='a.py', requirements='/locks'", "next to it (../NAME), got '/locks'"),
        (
            "script='a.py', requirements='..'",
            "benchmark.requirements: expected a folder inside this folder or next to it",
        ),
        ("script='a.py', requirements=None", "benchmark.requirements: expected text, got None"),
        ("script='a.py', cwd='home'", "benchmark.cwd: expected one of step_dir, data, source, definition, got 'home'"),
        ("script='a.py', cwd='source'", "benchmark.cwd: 'source' needs a `source`"),
        ("script='a.py', python_path=('src',)", "benchmark.python_path"),
        ("module='a', source=PyPI('a', '1', file='a-1.whl', sha256='12')", "benchmark.source.sha256"),
        ("module='a', source=PyPI('a', '1', file='a-1.rpm', sha256='0' * 64)", "expected a wheel or an sdist"),
        ("module='a', source=Git('https://example.org/a.git', 'main')", "expected a full commit hash, got 'main'"),
    ],
)
def test_what_contradicts_itself_is_refused(tmp_path: Path, fields: str, what: str) -> None:
    assert what in message(benchfile(tmp_path, f"benchmark = Benchmark({fields})\n"))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("script=3", "benchmark.script: expected text, got 3"),
        ("script='main.py', env={'A': 1}", "benchmark.env['A']: expected text, got 1"),
        ("script='main.py', options=[1]", "benchmark.options: expected a mapping, got [1]"),
        ("script='main.py', source='flax'", "benchmark.source: expected PyPI(...) or Git(...), got 'flax'"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(tmp_path: Path, fields: str, said: str) -> None:
    assert said in message(benchfile(tmp_path, f"benchmark = Benchmark({fields})\n"))


PACKAGE = Benchmark(
    module="trl.scripts.{trainer}", voirfile="{kind}/voirfile.py", options={"trainer": "sft", "kind": "lm", "seed": 1}
)


def test_options_in_braces_choose_the_program() -> None:
    filled = with_options(PACKAGE, {"trainer": "dpo"})
    assert (filled.module, filled.voirfile, filled.script) == ("trl.scripts.dpo", "lm/voirfile.py", None)
    assert with_options(PACKAGE, {"trainer": "rl.grpo"}).module == "trl.scripts.rl.grpo"
    script = Benchmark(script="cleanrl/{algorithm}_{n}.py", options={"algorithm": None, "n": "1"})
    assert with_options(script, {"algorithm": "ppo"}).script == "cleanrl/ppo_1.py"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("trainer", "dpo; ls"),
        ("trainer", "../dpo"),
        ("trainer", 3),
        ("trainer", None),
        ("kind", "../a"),
        ("kind", "/a"),
    ],
)
def test_a_value_that_is_no_name_is_refused_with_its_option(name: str, value: object) -> None:
    with pytest.raises(OptionError, match=r"can be no part of (module|voirfile)=") as caught:
        with_options(PACKAGE, {name: value})
    assert caught.value.name == name
