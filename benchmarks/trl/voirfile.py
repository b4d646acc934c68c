"""Tokens of every training step of TRL's trainers, counted on the host: padding is not counted."""

from __future__ import annotations

import os
import statistics
import sys
from collections import deque
from pathlib import Path
from time import perf_counter

from benchmate import fail, metric, option, probes

COLLATORS = {
    "sft": "trl.trainer.sft_trainer.DataCollatorForLanguageModeling.torch_call",
    "dpo": "trl.trainer.dpo_trainer.DataCollatorForPreference.torch_call",
    "kto": "trl.trainer.kto_trainer.DataCollatorForUnpairedPreference.torch_call",
    "reward": "trl.trainer.reward_trainer.DataCollatorForPreference.torch_call",
}
GENERATORS = {"grpo": "trl.trainer.grpo_trainer.GRPOTrainer", "rloo": "trl.trainer.rloo_trainer.RLOOTrainer"}
PARALLELISM = {"ddp": {"MULTI_GPU", "MULTI_XPU", "MULTI_HPU", "MULTI_CPU"}, "fsdp": {"FSDP"}}
WARM_UP_STEPS = 5


def instrument_tokens(ov):
    # Batches leave the collator in the order in which they are trained on, some of them ahead of time, and are counted
    # while they are still on the host: a sum over a mask on the accelerator would make every step wait.
    counts = deque()

    def tokens(*_, **__):
        if not counts:
            fail("invalid", "no token count: --dataloader_num_workers must be 0, and --steps_per_generation 1")
            return 0
        return counts.popleft()

    probes.trainer(ov, units="tokens/s", items=tokens)
    trainer = option("trainer")
    if trainer in COLLATORS:
        probes.patch(ov, COLLATORS[trainer], lambda collate: counting_batches(collate, counts))
        return
    # The reward function is named by its module, which is beside this file.
    sys.path.append(str(Path(__file__).parent))
    turns = Turns()
    probes.patch(ov, f"{GENERATORS[trainer]}._generate_single_turn", lambda generate: turns.timing(generate, counts))
    probes.patch(ov, "transformers.trainer.Trainer.training_step", turns.ending)
    try:
        yield ov.phases.run_script
    finally:
        turns.publish()


def instrument_parallelism(ov):
    """Fail a training that is not distributed as the suite says: a launcher can start one process without a word.

    Nor do ranks that were started without an accelerator know of each other unless the program is told so.
    """
    wanted, ranks = option("parallelism"), int(os.environ.get("WORLD_SIZE", "1"))
    if not wanted and ranks == 1:
        return
    checked = []

    def checking(train):
        def training_step(trainer, *args, **kwargs):
            if not checked:
                checked.append(True)
                check_parallelism(trainer.accelerator, wanted, ranks)
            return train(trainer, *args, **kwargs)

        return training_step

    probes.patch(ov, "transformers.trainer.Trainer.training_step", checking)


def check_parallelism(accelerator, wanted, ranks):
    metric("world_size", accelerator.num_processes, units="processes")
    kind = str(accelerator.distributed_type.value)
    if accelerator.num_processes != ranks:
        fail("invalid", f"not distributed: of {ranks} ranks accelerate knows {accelerator.num_processes}")
    elif wanted and kind not in PARALLELISM[wanted]:
        fail("invalid", f"not trained by {wanted}: accelerate runs as {kind} on {accelerator.num_processes} processes")


def counting_batches(collate, counts):
    def torch_call(collator, examples):
        batch = collate(collator, examples)
        real = batch.get("attention_mask")
        counts.append(int(real.sum()) if real is not None else batch["input_ids"].numel())
        return batch

    return torch_call


class Turns:
    """Generation and training take turns in a step; this times both on the host, where generated tokens arrive."""

    def __init__(self):
        self.generating = 0.0
        self.since = None
        self.steps = []

    def timing(self, generate, counts):
        def generate_single_turn(trainer, prompt_ids, *args, **kwargs):
            begin = perf_counter()
            generated = generate(trainer, prompt_ids, *args, **kwargs)
            self.generating += perf_counter() - begin
            # GRPO's are completions and their probabilities, RLOO's completions alone.
            completion_ids = generated[0] if isinstance(generated, tuple) else generated
            counts.append(sum(map(len, prompt_ids)) + sum(map(len, completion_ids)))
            return generated

        return generate_single_turn

    def ending(self, train):
        def training_step(*args, **kwargs):
            loss = train(*args, **kwargs)
            now = perf_counter()
            if self.since is not None:
                self.steps.append((self.generating, now - self.since))
            self.since, self.generating = now, 0.0
            return loss

        return training_step

    def publish(self):
        steps = self.steps[WARM_UP_STEPS:] or self.steps
        if steps:
            metric("generation", statistics.median(part for part, _ in steps), units="s", direction="lower")
            metric("training", statistics.median(whole - part for part, whole in steps), units="s", direction="lower")
