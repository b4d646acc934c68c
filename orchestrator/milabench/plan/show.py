"""A plan as text for a person; its JSON is `Plan.to_json`."""

from __future__ import annotations

import shlex

from milabench.plan.model import Plan, Step


def plan_text(plan: Plan) -> str:
    """Return each step with its command line, working folder, limits and the variables that are set."""
    lines = [f"{plan.phase} plan {plan.hash[:12]}: {len(plan.steps)} steps"]
    for group in plan.groups():
        lines.append("")
        if len(group) > 1:
            lines.append(f"together: {', '.join(step.id for step in group)}")
        for step in group:
            lines += _step_lines(step)
    if plan.skipped:
        lines += ["", "skipped:", *(f"  {skip.bench}: {skip.why}" for skip in plan.skipped)]
    return "\n".join(lines) + "\n"


def _step_lines(step: Step) -> list[str]:
    limits = [f"{step.timeout_s:g} s" if step.timeout_s is not None else "no time limit"]
    if step.max_silence_s is not None:
        limits.append(f"{step.max_silence_s:g} s of silence")
    devices = ",".join(map(str, step.devices))
    env = " ".join(
        f"{name}={'(secret)' if name in step.secret_env else shlex.quote(value)}"
        for name, value in sorted(step.env.items())
    )
    return [
        f"{step.id}  [{step.hash[:8]}]  node {step.node}, devices {devices or '-'}, {', '.join(limits)}",
        *([f"  in the container {step.container}"] if step.container is not None else []),
        f"  cd {shlex.quote(step.cwd)}",
        f"  {shlex.join(step.argv)}",
        f"  {env}",
    ]
