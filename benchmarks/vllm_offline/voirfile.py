"""Tokens of every step of vLLM's engine: those that it generated, or those of the prompts that it read."""

from __future__ import annotations

from benchmate import fail, option, probes

FIRST = 256


def instrument_engine(ov):
    # Called at the end of a step of the engine with what was scheduled and what came of it, whatever the number of devices.
    probes.calls(
        ov,
        "vllm.v1.core.sched.scheduler.Scheduler.update_from_output",
        units="tokens/s",
        items=of_prompts if option("counted") == "prompts" else generating(),
        task="inference",
        stop=True,
    )


def of_prompts(_scheduler, scheduled, _output):
    return scheduled.total_num_scheduled_tokens


def generating():
    """Random weights make any token as probable as another: where numbers break, the first tokens are all the same."""
    first = []

    def count(_scheduler, _scheduled, output):
        tokens = [token for row in output.sampled_token_ids for token in row]
        if len(first) < FIRST:
            first.extend(tokens)
            if len(first) >= FIRST and len(set(first)) < FIRST // 16:
                fail("invalid", f"the first {len(first)} tokens are {len(set(first))} different ones")
        return len(tokens)

    return count
