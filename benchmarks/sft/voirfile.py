"""Tokens of every training step, as the collator put them together: padding is not counted."""

from __future__ import annotations

from collections import deque

from benchmate import fail, probes

COLLATOR = "trl.trainer.sft_trainer.DataCollatorForLanguageModeling.torch_call"


def instrument_sft(ov):
    # Batches leave the collator in the order in which they are trained on, some of them ahead of time, and are counted
    # while they are still on the host: a sum over a mask on the accelerator would make every step wait.
    counts = deque()

    def counting(collate):
        def torch_call(collator, examples):
            batch = collate(collator, examples)
            real = batch.get("attention_mask")
            counts.append(int(real.sum()) if real is not None else batch["input_ids"].numel())
            return batch

        return torch_call

    def tokens(*_, **__):
        if not counts:
            fail("invalid", "no token count: batches must be collated in this process (--dataloader_num_workers 0)")
            return 0
        return counts.popleft()

    probes.patch(ov, COLLATOR, counting)
    probes.trainer(ov, units="tokens/s", items=tokens)
