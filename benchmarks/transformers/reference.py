"""What every inference program checks first: this device computes the model as double precision on the host does."""

from __future__ import annotations

import copy
from typing import Any

import torch

# The largest difference accepted, as a share of the outputs' spread: rounding. fp32 leaves room for convolutions in tf32.
TOLERANCE = {torch.float32: 0.005, torch.float16: 0.05, torch.bfloat16: 0.2}


def verify(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> None:
    """Compare the model's logits with those that a copy of it gives in float64 on the host."""
    weight = next(model.parameters())
    with torch.inference_mode():
        found = model(**converted(inputs, weight.device, weight.dtype)).logits
    compare(found, model, inputs)


def verify_answer(model: torch.nn.Module, prompt: torch.Tensor) -> None:
    """Compare the logits of a generated text, made token by token, with those of the whole text at once on the host."""
    answer = greedy(model, prompt.to(model.device), 8, return_dict_in_generate=True, output_logits=True)
    compare(torch.stack(answer.logits, 1), model, {"input_ids": answer.sequences[:, :-1]})


def greedy(model: Any, prompts: torch.Tensor, count: int, **more: Any) -> Any:
    """`count` tokens for each of the prompts, none of which is padded."""
    lengths = {"max_new_tokens": count, "min_new_tokens": count}
    return model.generate(prompts, attention_mask=torch.ones_like(prompts), do_sample=False, **lengths, **more)


def compare(found: torch.Tensor, model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> None:
    """End the program unless `found` are the last logits of `inputs`, by a copy of the model in float64 on the host."""
    host = copy.deepcopy(model).to("cpu", torch.float64)
    with torch.inference_mode():
        expected = host(**converted(inputs, "cpu", torch.float64)).logits
    if expected.ndim == 3:  # of sequences: for each token
        expected = expected[:, -found.shape[1] :]
    require(found, expected, next(model.parameters()).dtype)


def require(found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    error = ((found.to("cpu", torch.float64) - expected).abs().max() / expected.std()).item()
    print(f"largest difference from float64: {error:.1e} of the outputs' spread")
    if not error <= TOLERANCE[dtype]:  # also when it is not a number
        raise SystemExit(
            f"error: wrong outputs in {dtype}: they differ from float64 on the host by {error:.1e} of their spread "
            f"(at most {TOLERANCE[dtype]:g})"
        )


def best_device() -> torch.device:
    return torch.accelerator.current_accelerator() or torch.device("cpu")


def converted(
    inputs: dict[str, torch.Tensor], device: torch.device | str, dtype: torch.dtype
) -> dict[str, torch.Tensor]:
    return {name: x.to(device, dtype if x.is_floating_point() else None) for name, x in inputs.items()}
