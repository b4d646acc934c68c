"""transformers' Trainer and accelerate, the real ones."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
from test_probes import run, write

needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None or importlib.util.find_spec("accelerate") is None,
    reason="transformers and accelerate are not installed",
)
pytestmark = needs_transformers

CONFIG = {"measure": {"warmup_steps": 2, "warmup_s": 0, "window_steps": 6, "window_s": 0}}
OFFLINE = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}

SCRIPT = """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

    torch.set_num_threads(1)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2
    )
    rows = [{"input_ids": torch.randint(0, 64, (16,)), "labels": torch.randint(0, 64, (16,))} for _ in range(64)]
    arguments = TrainingArguments(
        output_dir="out", per_device_train_batch_size=2, gradient_accumulation_steps=ACCUMULATE, num_train_epochs=50,
        report_to=[], save_strategy="no", logging_strategy="no", use_cpu=True, disable_tqdm=True,
    )

    class Counting(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            pass

    Trainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=rows, callbacks=[Counting()]).train()
"""


@pytest.mark.parametrize("accumulate", [1, 2])
def test_training_steps_are_observed_with_their_tokens_and_losses(agent, tmp_path, accumulate):
    script = SCRIPT.replace("ACCUMULATE", str(accumulate))
    ran = run(agent, tmp_path, script, "probes.trainer(ov)\nprobes.parts(ov)", config=CONFIG, env=OFFLINE)
    assert ran.code == 0, ran.stderr
    entries = agent.entries()
    assert [entry.n for entry in entries] == [32] * 8
    assert len(agent.losses()) >= 8
    assert all(entry.parts_ns is not None and entry.parts_ns[1] > 0 for entry in entries)


@pytest.mark.parametrize("batch", ["{'input_values': None}", "[{'prompt': 'a'}]"])
def test_of_inputs_without_tokens_the_message_says_what_to_give(agent, tmp_path, batch):
    # Sounds; and the prompts of TRL's GRPO, which are a list.
    script = f"""
        from transformers import Trainer
        class Bare(Trainer):
            def __init__(self):
                pass
        Bare().training_step(None, {batch})
    """
    wrapped = 'probes.patch(ov, "transformers.trainer.Trainer.training_step", lambda step: lambda *_: None)\nprobes.trainer(ov)'
    assert run(agent, tmp_path, script, wrapped, config=CONFIG, env=OFFLINE).code == 1
    details = [failed["detail"] for failed in agent.controls("fail")]
    assert any(
        "have no input_ids. Give items=: a function of trainer, model and inputs" in detail for detail in details
    ), details


def test_optimizer_steps_are_observed_through_a_callback(agent, tmp_path):
    probe = """
        probes.calls(ov, "transformers.trainer_callback.CallbackHandler.on_step_end", units="sequences/s", items=4)
    """
    ran = run(agent, tmp_path, SCRIPT.replace("ACCUMULATE", "2"), probe, config=CONFIG, env=OFFLINE)
    assert ran.code == 0, ran.stderr
    assert [entry.n for entry in agent.entries()] == [4] * 8


def test_accelerate_launch_starts_the_runner(agent, tmp_path):
    script = """
        import torch
        from accelerate import Accelerator
        from torch.utils.data import DataLoader, TensorDataset

        def main():
            torch.set_num_threads(1)
            accelerator = Accelerator(cpu=True)
            model = torch.nn.Linear(8, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            loader = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=4)
            model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
            while True:
                for (batch,) in loader:
                    accelerator.backward(model(batch).mean())
                    optimizer.step()

        if __name__ == "__main__":
            main()
    """
    voirfile = (
        "from benchmate import probes\n"
        "def instrument_main(ov):\n"
        "    probes.optimizer_step(ov, units='samples/s', items=4)\n"
    )
    flags = [
        "--cpu",
        "--num_processes",
        "1",
        "--num_machines",
        "1",
        "--mixed_precision",
        "no",
        "--dynamo_backend",
        "no",
    ]
    words = ["--module", "benchmate.run", "--voirfile", write(tmp_path, "voirfile.py", voirfile)]
    ran = agent.run(
        "launch", *flags, *words, write(tmp_path, "script.py", script),
        config=CONFIG, env=OFFLINE, module="accelerate.commands.accelerate_cli",
    )  # fmt: skip
    assert ran.code == 0, ran.stderr
    assert [entry.n for entry in agent.entries()] == [4] * 8


def test_watching_for_transformers_does_not_break_its_import(tmp_path):
    script = write(tmp_path, "s.py", "import transformers\nprint('Trainer' in dir(transformers))")
    voirfile = write(
        tmp_path, "v.py", "from benchmate import probes\ndef instrument_x(ov): probes.trainer(ov, required=False)"
    )
    done = subprocess.run(
        [sys.executable, "-m", "benchmate.run", "--voirfile", voirfile, script],
        env={**os.environ, **OFFLINE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "True\n")


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_first_steps_of_a_trainer_are_made_again_with_the_same_losses(agent, tmp_path, accumulate):
    script = SCRIPT.replace("ACCUMULATE", str(accumulate))
    config = {"answers": {"steps": 4, "gradients": True}, **CONFIG}
    ran = run(agent, tmp_path, script, "probes.trainer(ov)", config=config, env=OFFLINE)
    assert ran.code == 0, ran.stderr
    [found] = [record["answers"] for record in agent.records() if "answers" in record]
    assert len(set(found["first"])) == 4
    assert found["again"] == found["first"]
    assert len(found["gradients"]["first"]) == 4 // accumulate
    assert found["gradients"]["again"] == found["gradients"]["first"]
