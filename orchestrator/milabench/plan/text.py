"""The plan as text, for a person."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from operator import attrgetter

from milabench.plan.model import STEP_DIRS, Plan, Step
from milabench.plan.step_dir import with_step_dir
from milabench.redaction import MASK
from milabench.shown import counted


def plan_text(plan: Plan, *, is_full: bool = False, estimate: Sequence[str] = ()) -> str:
    """Return each step with its command line and limits, of several repeats the first. `is_full`: all, with folder and variables.

    `estimate` are lines below the first line.
    """
    benches = len({step.bench for step in plan.steps})
    size = f"{counted(len(plan.steps), 'step')} of {counted(benches, 'benchmark')}"
    lines = [f"{plan.phase} plan {plan.hash[:12]}: {size}", *estimate]
    repeats = {step.bench: step.repeat + 1 for step in sorted(plan.steps, key=attrgetter("repeat"))}
    for group in plan.groups():
        if group[0].repeat > 0 and not is_full:
            continue
        lines.append("")
        if len(group) > 1:
            lines.append(f"together: {', '.join(step.id for step in group)}")
        for step in group:
            lines += _step_lines(step, is_full=is_full, repeats=repeats[step.bench])
    if plan.skipped:
        lines += ["", "skipped:", *(f"  {skip.bench}: {skip.why}" for skip in plan.skipped)]
    return "\n".join(lines) + "\n"


def _step_lines(step: Step, *, is_full: bool, repeats: int) -> list[str]:
    limits = [f"at most {step.timeout_s:g} s" if step.timeout_s is not None else "no time limit"]
    if repeats > 1 and not is_full:
        limits.insert(0, f"{repeats} repeats")
    if step.max_silence_s is not None:
        limits.append(f"{step.max_silence_s:g} s of silence")
    devices = ",".join(map(str, step.devices))
    # The run has no name yet.
    runs = step.env.get("MILABENCH_DIR_RUNS", "runs")
    shown = with_step_dir(step, f"{runs}/RUN/{STEP_DIRS}/{step.stem or step.id}").shown()
    env = {**shown["env"], **dict.fromkeys(step.secret_env, MASK)}
    lines = [
        f"{step.id}  [{step.hash[:8]}]  node {step.node}, devices {devices or '-'}, {', '.join(limits)}",
        *([f"  in the container {step.container}"] if step.container is not None else []),
        f"  {_shell_line(shown['argv'])}",
    ]
    if is_full:
        lines.insert(-1, f"  cd {shlex.quote(shown['cwd'])}")
        lines.append(f"  {' '.join(f'{name}={_shell_line([value])}' for name, value in sorted(env.items()))}")
    return lines


def _shell_line(words: Sequence[str]) -> str:
    """Return words as for a shell, with readable masks."""
    return " ".join(word if word == MASK else shlex.quote(word) for word in words)
