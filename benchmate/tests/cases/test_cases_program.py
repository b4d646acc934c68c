"""A program of cases as a user runs it: each defect of the library it takes after is a claim here."""

from __future__ import annotations

import json
import signal
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from programs import Program, is_gone, until

Make = Callable[[str], Program]
BOTH = pytest.mark.parametrize("isolation", ["spawn", "fork"])

ENDINGS = """
    @benchmark.register(name="passes")
    def passes():
        print("a line that is no result")

    @benchmark.register(name="raises")
    def raises():
        raise ValueError("no such thing")

    @benchmark.register(name="exits 3")
    def exits():
        os._exit(3)

    @benchmark.register(name="exits 0")
    def exits_well():
        os._exit(0)

    @benchmark.register(name="crashes")
    def crashes():
        os.kill(os.getpid(), signal.SIGSEGV)

    @benchmark.register(name="closes its pipe")
    def closes():
        os.closerange(3, 256)

    @benchmark.register(name="skips")
    def skips():
        raise benchmark.Skip("no fbgemm")
"""


@BOTH
def test_every_ending_is_a_row_with_its_status_and_the_rest_goes_on(program: Make, isolation: str) -> None:
    said = program(ENDINGS).run("-T", "csv", "--isolation", isolation)
    found = {name: (row["outcome"], row["why"], row["detail"]) for name, row in said.rows().items()}
    assert found == {
        "passes": ("passed", "", ""),
        "raises": ("failed", "exit", "run: ValueError: no such thing"),
        "exits 3": ("failed", "exit", "exit code 3"),
        "exits 0": ("failed", "no-data", "exited with code 0, but without a result"),
        "crashes": ("failed", "signal", "ended by SIGSEGV"),
        "closes its pipe": ("failed", "no-data", "the case closed the pipe of its result"),
        "skips": ("skipped", "", "no fbgemm"),
    }
    assert said.code == 1
    assert "a line that is no result" in said.err
    assert all(row["wall_time"] == "NaN" for name, row in said.rows().items() if name != "passes")


@BOTH
def test_a_case_that_hangs_is_ended_at_its_limit(program: Make, isolation: str) -> None:
    made = program("""
        @benchmark.register(name="hangs")
        def hangs():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            with open("pid", "w") as file:
                file.write(str(os.getpid()))
            time.sleep(3600)
    """)
    said = made.run("-T", "csv", "-t", "1", "--isolation", isolation)
    row = said.rows()["hangs"]
    assert (said.code, row["outcome"], row["why"]) == (1, "failed", "timeout")
    assert row["detail"] == "still running after 1 s. -t sets the limit"
    assert is_gone(int((made.folder / "pid").read_text()))


@BOTH
def test_a_thread_that_a_case_leaves_running_is_flagged(program: Make, isolation: str) -> None:
    said = program("""
        import threading

        @benchmark.register(name="leaves")
        def leaves():
            threading.Thread(target=time.sleep, args=(3600,), name="still-here").start()

        @benchmark.register(name="ends")
        def ends():
            threading.Thread(target=time.sleep, args=(0.2,)).start()
            threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
    """).run("-T", "csv", "--isolation", isolation)
    found = {name: (row["outcome"], row["reasons"], row["detail"]) for name, row in said.rows().items()}
    assert found == {
        "leaves": ("passed", "abort-at-exit", "did not end after its result"),
        "ends": ("passed", "", ""),
    }


def test_a_case_that_dies_before_it_speaks_fails_with_the_end_of_its_output(program: Make) -> None:
    made = program("""
        if "--run" in sys.argv:
            import nothing_of_this_name

        @benchmark.register(name="x")
        def x():
            pass
    """)
    said = made.run("-T", "csv")
    detail = "exit code 1: ModuleNotFoundError: No module named 'nothing_of_this_name'"
    assert (said.code, said.rows()["x"]["detail"]) == (1, detail)


@BOTH
def test_what_a_case_leaves_behind_is_ended(program: Make, isolation: str) -> None:
    made = program("""
        @benchmark.register(name="leaves")
        def leaves():
            pids = [subprocess.Popen(["sleep", "3600"], start_new_session=alone).pid for alone in (False, True)]
            with open("pids", "w") as file:
                print(*pids, file=file)
    """)
    said = made.run("-T", "csv", "--isolation", isolation)
    assert said.rows()["leaves"]["outcome"] == "passed"
    assert all(is_gone(int(pid)) for pid in (made.folder / "pids").read_text().split())


def test_a_case_that_prints_without_end_is_shown_in_part(program: Make) -> None:
    made = program("""
        @benchmark.register(name="prints")
        def prints():
            for _ in range(100):
                os.write(1, b"x" * (1 << 20))
    """)
    said = made.run("-T", "csv")
    assert said.rows()["prints"]["outcome"] == "passed"
    assert len(said.err) < 1_100_000
    assert "output beyond 1048576 bytes is not shown" in said.err


def test_a_program_that_lingers_after_its_result_is_measured_and_marked(program: Make) -> None:
    made = program("""
        import atexit

        @benchmark.register(name="aborts")
        def aborts():
            atexit.register(os.abort)
    """)
    row = made.run("-T", "csv").rows()["aborts"]
    assert (row["outcome"], row["reasons"], row["detail"]) == ("passed", "abort-at-exit", "ended by SIGABRT")


@BOTH
def test_one_matching_case_is_isolated_too_and_so_is_each_repetition(program: Make, isolation: str) -> None:
    made = program("""
        @benchmark.register(name="x")
        def x(state):
            state.counters["pid"] = os.getpid()
            state.counters["group"] = os.getpgrp()
    """)
    running = made.start("--benchmark_format=json", "--benchmark_repetitions=3", "--isolation", isolation)
    out, _ = running.communicate()
    rows = [row for row in json.loads(out)["benchmarks"] if row["run_type"] == "iteration"]
    pids = {row["pid"] for row in rows}
    assert len(pids) == 3
    assert running.pid not in pids
    assert {row["group"] for row in rows} == pids


def test_two_programs_in_one_folder_do_not_meet(program: Make) -> None:
    made = program("""
        @benchmark.register(name="{n}", n=[1, 2])
        def x(n, state):
            state.counters["n"] = n
            state.counters["whose"] = int(os.environ["WHOSE"])
    """)
    both = [made.start("--benchmark_format=json", "--lock", "none", WHOSE=str(whose)) for whose in (1, 2)]
    for whose, running in enumerate(both, 1):
        rows = json.loads(running.communicate()[0])["benchmarks"]
        assert [(row["name"], row["n"], row["whose"]) for row in rows] == [(str(n), n, whose) for n in (1, 2)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_what_it_measured_and_leaves_nothing_behind(program: Make, number: int) -> None:
    made = program("""
        @benchmark.register(name="first")
        def first():
            pass

        @benchmark.register(name="second")
        def second():
            with open("pid.part", "w") as file:
                file.write(str(os.getpid()))
            os.rename("pid.part", "pid")
            time.sleep(3600)
    """)
    running = made.start("-T", "json", "-o", "out.json")
    until((made.folder / "pid").exists)
    running.send_signal(number)
    _, err = running.communicate()
    assert (running.returncode, err.splitlines()[-1]) == (130, "interrupted after 1 of 2 processes")
    assert [case["name"] for case in json.loads((made.folder / "out.json").read_text())["cases"]] == ["first"]
    assert is_gone(int((made.folder / "pid").read_text()))


@BOTH
def test_no_case_outlives_a_program_that_was_killed(program: Make, isolation: str) -> None:
    made = program("""
        @benchmark.register(name="x")
        def x():
            with open("pid.part", "w") as file:
                file.write(str(os.getpid()))
            os.rename("pid.part", "pid")
            time.sleep(3600)
    """)
    running = made.start("--isolation", isolation)
    until((made.folder / "pid").exists)
    running.kill()
    running.communicate()
    pid = int((made.folder / "pid").read_text())
    until(lambda: is_gone(pid))


def test_nothing_of_the_parents_memory_is_counted_as_the_cases(program: Make) -> None:
    made = program("""
        if "--run" not in sys.argv:
            large = bytearray(b"x" * 400_000_000)

        @benchmark.register(name="x")
        def x():
            pass
    """)
    row = made.run("-T", "csv").rows()["x"]
    assert int(row["host_memory_peak_run"]) < 200_000_000


def test_a_fork_is_refused_where_it_would_not_be_safe(program: Make) -> None:
    made = program("""
        import threading

        if "--serve" in sys.argv:
            threading.Thread(target=time.sleep, args=(3600,), daemon=True, name="loader").start()

        @benchmark.register(name="x")
        def x():
            pass
    """)
    said = made.run("--isolation", "fork")
    assert said.code == 2
    assert "not safe: the program starts a thread when it is imported (loader). Make that part of setup" in said.err


def test_a_module_that_cannot_be_preloaded_ends_the_program_with_a_line(program: Make) -> None:
    said = program(QUIET).run("--isolation", "fork", "--preload", "nothing_of_this_name")
    line = (
        "error: --isolation fork: --preload nothing_of_this_name: No module named 'nothing_of_this_name'. Leave it out"
    )
    assert (said.code, said.err.splitlines()[-1]) == (2, f"{line}, or use --isolation spawn")


def test_a_fork_server_takes_no_file(program: Make, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("text")
    said = program(QUIET).run("--serve", str(tmp_path / "kept"))
    assert (said.code, (tmp_path / "kept").read_text()) == (2, "text")
    assert "expected fd:NUMBER. Only the runner can open it" in said.err


def test_a_program_that_cannot_be_imported_twice_ends_with_a_line(program: Make) -> None:
    said = program('if "--serve" in sys.argv: sys.exit(4)\n' + textwrap.dedent(QUIET)).run("--isolation", "fork")
    line = "error: the program ended while it was imported, with exit code 4"
    assert (said.code, said.err.splitlines()[-1]) == (2, line)


def test_a_registration_that_cannot_be_ends_the_program_with_a_line(program: Make) -> None:
    made = program("""
        @benchmark.register(name="A/{task}")
        def x(task):
            pass
    """)
    said = made.run()
    line = made.file.read_text().splitlines().index('@benchmark.register(name="A/{task}")') + 1
    assert said.code == 2
    assert said.err == f"error: {made.file}:{line}: 'A/{{task}}': no values for the field {{task}}. Add task=[...]\n"


QUIET = """
    @benchmark.register(name="RoBERTa/{task}/{batch}", task=["CoLA", "MNLI"], batch=[16, 160])
    def x(task, batch):
        pass
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_results_that_cannot_be_written_are_a_line_and_a_code(program: Make) -> None:
    said = program(QUIET).run("-T", "csv", "-o", "/dev/full", "-f", "RoBERTa/CoLA/16")
    assert (said.code, said.err.splitlines()[-1]) == (1, "error: /dev/full: No space left on device")


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["-f", "nothing"], 3, "error: no case has a name with 'nothing'. -l lists all 4"),
        (["-l", "nothing"], 3, "error: no case has a name with 'nothing'. -l lists all 4"),
        (["--benchmark_filter=-RoBERTa"], 3, "error: no case has a name without 'RoBERTa'. -l lists all 4"),
        (
            ["-f", "("],
            2,
            "error: -f '(': not a regular expression: missing ), unterminated subpattern, at its character 1",
        ),
        (
            ["-o", "no/such/folder/x.csv"],
            2,
            "error: no/such/folder/x.csv: No such file or directory. Give a file that can be written",
        ),
        (["-r", "nothing"], 2, "error: -r 'nothing': no such case. -l lists them"),
        (
            ["-s", "fd:999", "-r", "RoBERTa/CoLA/16"],
            2,
            "error: fd:999: this descriptor is not open. Only the runner can open it",
        ),
        (
            ["--preload", "json"],
            2,
            "error: --preload is for --isolation fork. A fresh interpreter imports its own modules",
        ),
    ],
)
def test_bad_input_gets_a_line_and_a_code(program: Make, argv: list[str], code: int, said: str) -> None:
    answered = program(QUIET).run(*argv)
    assert (answered.code, answered.err.splitlines()[-1], answered.out) == (code, said, "")


def test_a_program_without_cases_says_how_to_make_one(program: Make) -> None:
    said = program("").run()
    assert (said.code, said.err) == (
        3,
        "error: no cases are registered. Put @register(name='...') before a function or class\n",
    )


def test_names_are_listed_in_the_order_of_registration(program: Make) -> None:
    made = program(QUIET)
    assert made.run("-l").out.splitlines() == [f"RoBERTa/{t}/{b}" for t in ("CoLA", "MNLI") for b in (16, 160)]
    assert made.run("-l", "MNLI").out.splitlines() == ["RoBERTa/MNLI/16", "RoBERTa/MNLI/160"]


def test_one_case_can_be_run_in_place_and_its_result_sent_to_a_file(program: Make) -> None:
    made = program(QUIET)
    assert made.run("-r", "RoBERTa/CoLA/16", "-s", "result").code == 0
    said = json.loads((made.folder / "result").read_text())
    assert (said["name"], said["outcome"], said["iterations"]) == ("RoBERTa/CoLA/16", "passed", 1)


def test_the_slip_in_the_name_of_the_variable_is_mended_with_a_warning(program: Make) -> None:
    made = program("""
        @benchmark.register(name="x")
        def x(state):
            state.label = os.environ["CUDA_VISIBLE_DEVICES"]
    """)
    said = made.run("-T", "csv", CUDA_VISIBLE_GPU="2,3")
    assert said.rows()["x"]["label"] == "2,3"
    assert "warning: CUDA_VISIBLE_GPU is taken as CUDA_VISIBLE_DEVICES=2,3" in said.err


def test_the_documents_example_lists_and_runs_the_right_cases(tmp_path: Path) -> None:
    example = Path(__file__).resolve().parents[3] / "benchmarks" / "cases" / "sanity.py"
    if not example.exists():
        pytest.skip("benchmate stands alone here, without the benchmarks beside it")
    made = Program(tmp_path, "")
    made.file = example
    assert len(made.run("-l").out.splitlines()) == 13
    said = made.run("-T", "csv", "-o", "out.csv", "-f", "RoBERTa/.*/MNLI/(16|32)")
    assert (said.code, said.out) == (0, "total 2 benchmark(s) matched to pattern\n")
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0].startswith("cuda_memory_usage,name,wall_time,")
    assert [line.split(",")[1] for line in lines[1:]] == ["RoBERTa/Baseline/MNLI/16", "RoBERTa/Baseline/MNLI/32"]


def test_processes_of_all_cases_are_interleaved_and_told_in_order(program: Make) -> None:
    made = program(QUIET)
    said = made.run(
        "--benchmark_format=json",
        "--benchmark_enable_random_interleaving",
        "--benchmark_repetitions=2",
        "--isolation=fork",
    )
    rows = [row for row in said.google() if row["run_type"] == "iteration"]
    assert [(row["per_family_instance_index"], row["repetition_index"]) for row in rows] == [
        (instance, repetition) for instance in range(4) for repetition in range(2)
    ]
