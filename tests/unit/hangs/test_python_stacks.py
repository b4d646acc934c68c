"""Stacks of processes, as py-spy, faulthandler and flight recorders write them."""

from __future__ import annotations

import faulthandler
import json
import pickle
import subprocess
import tempfile
from typing import Any

from milabench.hangs.on_node.collectives import read_dump
from milabench.hangs.on_node.python_stacks import read_faulthandler, read_py_spy


def test_the_stacks_of_faulthandler_are_read() -> None:
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file=file, all_threads=True)
        file.seek(0)
        (main, *_) = read_faulthandler(file.read().decode())
    function, path, line = main["frames"][0]
    assert (function, path) == ("test_the_stacks_of_faulthandler_are_read", "unit/hangs/test_python_stacks.py")
    assert line > 1


def test_the_thread_that_was_signalled_comes_first_and_later_pythons_say_names() -> None:
    text = (
        "Thread 0x00007f12 [loader] (most recent call first):\n"
        '  File "/usr/lib/python3.14/queue.py", line 5 in get\n\n'
        "Current thread 0x00007f34 [python] (most recent call first):\n"
        '  File "/venv/lib/python3.14/site-packages/torch/a b.py", line 9 in <module>\n'
        "  ...\n"
    )
    assert [(thread["name"], thread["frames"]) for thread in read_faulthandler(text)] == [
        ("python", [("<module>", "site-packages/torch/a b.py", 9)]),
        ("loader", [("get", "python3.14/queue.py", 5)]),
    ]


def spied(**more: Any) -> dict[str, Any]:
    frame = {
        "name": "f",
        "filename": "/home/me/job/train.py",
        "line": 3,
        "locals": [{"name": "token", "repr": "hunter22"}],
    }
    return {"thread_name": "MainThread", "os_thread_id": 7, "owns_gil": True, "frames": [frame], **more}


def test_the_stacks_of_py_spy_are_read_without_values() -> None:
    other = spied(thread_name="pin_memory", os_thread_id=8, owns_gil=False)
    main, second = read_py_spy(json.dumps([other, spied()]).encode(), 7)
    assert (main["holds_gil"], main["frames"]) == (True, [("f", "me/job/train.py", 3)])
    assert second["name"] == "pin_memory"
    assert "hunter22" not in repr((main, second))


def test_both_name_a_method_alike() -> None:
    frame = {"name": "Trainer.train", "filename": "/home/me/job/train.py", "line": 3}
    ((thread,), (written,)) = (
        read_py_spy(json.dumps([spied(frames=[frame])]).encode(), 7),
        read_faulthandler(
            'Current thread 0x1 (most recent call first):\n  File "/home/me/job/train.py", line 3 in train\n'
        ),
    )
    assert thread["frames"] == written["frames"] == [("train", "me/job/train.py", 3)]


def test_what_is_no_answer_of_py_spy_has_no_stacks() -> None:
    assert read_py_spy(b"Error", 7) == read_py_spy(b'[{"frames": 5}]', 7) == []


def test_the_last_entry_of_a_flight_recorder_is_read() -> None:
    entry = {"record_id": 4, "profiling_name": "nccl:all_reduce", "collective_seq_id": 412, "state": "started"}
    dump = pickle.dumps({"entries": [entry, {**entry, "record_id": 3, "collective_seq_id": 411}]})
    assert read_dump(dump) == {"name": "nccl:all_reduce", "number": 412, "state": "started"}
    assert read_dump(dump[:-5]) is None


def test_a_dump_that_would_run_code_is_refused() -> None:
    class Harmful:
        def __reduce__(self) -> Any:
            return subprocess.check_call, (["false"],)

    assert read_dump(pickle.dumps({"entries": [Harmful()]})) is None
