"""What the child process answers about benchfiles of milabench 1.3."""

from __future__ import annotations

from tests.foreign_requests import DIRS, FOLDERS, JOB, answers, benchmark, definition, planned, words


def test_a_plain_package_runs_its_main_script_under_the_runner_on_each_device() -> None:
    assert words("plain", benchmark(devices=2)) == {
        "n1/b.D0": "@runner D/main.py --lr 0.1",
        "n1/b.D1": "@runner D/main.py --lr 0.1",
    }


def test_a_process_has_its_folder_and_the_variables_of_make_env() -> None:
    (process,) = planned("plain")["processes"].values()
    assert process == {
        "placement": "n1/b.D0",
        "tag": ["b", "D0"],
        "words": ["@runner", f"{FOLDERS}/plain/main.py", "--lr", "0.1"],
        "env": {
            **{f"MILABENCH_DIR_{name.upper()}": path for name, path in DIRS.items()},
            "XDG_CACHE_HOME": "/base/cache",
            "TORCH_HOME": "/base/cache",
            "HF_HOME": "/base/data",
        },
        "cwd": f"{FOLDERS}/plain",
        "stdout": False,
        "devices": [0],
        "container": None,
    }


def test_the_prepare_script_gets_the_arguments_of_the_run() -> None:
    prepare = planned("plain")["prepare"]
    assert prepare["words"] == [f"{FOLDERS}/plain/prepare.py", "--lr", "0.1"]
    assert prepare["cwd"] == f"{FOLDERS}/plain"


def test_a_coroutine_that_only_calls_its_base_is_not_its_own() -> None:
    (answer,) = answers(definition(FOLDERS / "plain"))
    del answer["benchmarks"]
    assert answer == {
        "main_script": "main.py",
        "prepare_script": "prepare.py",
        "base_requirements": ["requirements.in"],
        "own_install": False,
        "own_prepare": False,
    }


def test_a_program_that_gives_its_records_on_standard_output_has_no_runner() -> None:
    (answer,) = answers(definition(FOLDERS / "stdout", benchmark(JOB, devices=2)))
    (process,) = answer["benchmarks"][0]["processes"].values()
    assert process["words"][0] == f"{FOLDERS}/stdout/main.py"
    assert process["stdout"]
    assert process["devices"] == [0, 1]
    assert answer["benchmarks"][0]["prepare"] is None
    assert answer["base_requirements"] == ["requirements-pre.in", "requirements.in"]


def test_templates_of_the_suite_stay_for_the_control_plane() -> None:
    argv = {"--workers": "{n_worker}", "--batch": "auto_batch(32)", "--skip": None, "--flag": True, "pos": True}
    (line,) = words("plain", benchmark(argv=argv)).values()
    assert line == "@runner D/main.py pos --workers {n_worker} --batch auto_batch(32) --flag"
