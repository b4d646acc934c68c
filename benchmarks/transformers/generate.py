"""Answer prompts with transformers' own generate(), greedily, batch after batch; prefill or decode by the lengths."""

from __future__ import annotations

import argparse
import copy
import itertools
from collections.abc import Iterable

import torch
import transformers
from columns import Columns
from reference import best_device, greedy, verify_answer
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig

BATCHES = 4  # different ones, in turn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="folder with a config.json")
    parser.add_argument("--data", required=True, help="folder with input_ids.npy, the prompts")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--batch-size", type=int, default=8, help="prompts in a batch")
    parser.add_argument("--new-tokens", type=int, default=32, help="tokens generated for each prompt")
    args = parser.parse_args()

    transformers.set_seed(1)
    device, dtype = best_device(), getattr(torch, args.dtype)
    config, prompts = AutoConfig.from_pretrained(args.model), Columns(args.data)
    few = copy.deepcopy(config)  # layers of the same widths, as many as the host can follow in double precision
    few.num_hidden_layers, few.vocab_size = min(2, config.num_hidden_layers), min(1024, config.vocab_size)
    verify_answer(built(few, device, dtype), prompts.batch(0, 1)["input_ids"][:, :16] % few.vocab_size)
    model = built(config, device, dtype)
    print(f"{type(model).__name__}: {model.num_parameters():,} parameters on {device}")

    inputs = [prompts.batch(i * args.batch_size, args.batch_size)["input_ids"].to(device) for i in range(BATCHES)]
    answers: dict[int, torch.Tensor] = {}
    for batch, count in batches(inputs, args.new_tokens):
        tokens = greedy(model, batch, count)[:, batch.shape[1] :].cpu()
        if not torch.equal(answers.setdefault(id(batch), tokens), tokens):
            raise SystemExit("error: the same prompts were answered with other tokens than before")


def built(config: PreTrainedConfig, device: torch.device, dtype: torch.dtype) -> torch.nn.Module:
    with device:  # random weights, made where they are used
        return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def batches(inputs: list[torch.Tensor], tokens: int) -> Iterable[tuple[torch.Tensor, int]]:
    """The prompts again and again, with how many tokens are to be generated: the runner ends the program."""
    return zip(itertools.cycle(inputs), itertools.repeat(tokens))


if __name__ == "__main__":
    main()
