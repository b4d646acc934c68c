"""By what probes a program is observed, and the voirfile that says so."""

from __future__ import annotations

import pytest

from milabench.own_program.observation import ProgramObservation, observation_of, voirfile_text
from milabench.own_program.script import Found
from tests.commands import ROOT
from tests.own_programs import read

PROGRAMS = ROOT / "tests" / "programs" / "own"


def observation(text: str) -> ProgramObservation | None:
    return observation_of(read(text))


def steps(text: str) -> str:
    found = observation(text)
    assert found is not None
    return found.steps


@pytest.mark.parametrize(
    ("name", "probe"),
    [
        ("torch_digits.py", 'probes.loop(ov, 38, units="samples/s")'),
        ("accelerate_regression.py", 'probes.loop(ov, 32, units="samples/s")'),
        ("lightning_autoencoder.py", 'probes.lightning(ov, units="samples/s")'),
        ("trainer_classifier.py", 'probes.trainer(ov, units="tokens/s")'),
        ("flax_mlp.py", 'probes.loop(ov, 44, units="steps/s", batch_size=1)'),
        ("xgboost_trees.py", 'probes.calls(ov, "xgboost.core.Booster.update", units="rounds/s")'),
        ("lightgbm_regression.py", 'probes.calls(ov, "lightgbm.basic.Booster.update", units="rounds/s")'),
        (
            "keras_convnet.py",
            'probes.calls(ov, "keras.src.callbacks.callback_list.CallbackList.on_train_batch_end", units="steps/s", '
            "result=lambda callbacks, batch, logs=None: logs, items=lambda callbacks, batch, logs=None: "
            'min(batch + 1, callbacks.params["steps"] or batch + 1) - batch - 1 + callbacks.model.steps_per_execution)',
        ),
        (
            "spacy_textcat.py",
            'probes.calls(ov, "spacy.language.Language.update", units="words/s", '
            "items=lambda nlp, examples, *rest, **more: sum(map(len, examples)))",
        ),
    ],
)
def test_each_framework_is_observed_by_its_probe(name: str, probe: str) -> None:
    assert steps((PROGRAMS / name).read_text()) == probe


@pytest.mark.parametrize("name", ["sklearn_forest.py", "gensim_word2vec.py"])
def test_a_library_that_shows_no_steps_is_not_observed(name: str) -> None:
    assert observation((PROGRAMS / name).read_text()) is None


TORCH = """
import torch
optimizer = torch.optim.SGD([], lr=0.1)
for step in range(100):
    loss = model(x)
    loss.backward()
    optimizer.step()
"""


def test_a_torch_loop_that_counts_is_observed_by_its_optimizer() -> None:
    found = observation(TORCH)
    assert found is not None
    assert found.steps == 'probes.optimizer_step(ov, units="steps/s")'
    assert found.loss == Found(what="loss", line=6)


def test_a_loop_in_which_two_optimizers_step_is_observed_itself() -> None:
    both = TORCH.replace("for step", "critic = torch.optim.Adam([])\nfor step") + "    critic.step()\n"
    found = observation(both)
    assert found is not None
    assert found.steps == 'probes.loop(ov, 5, units="steps/s", batch_size=1)'
    assert found.loss == Found(what="loss", line=7)
    chosen = TORCH.replace("for step", "if adam:\n    optimizer = torch.optim.Adam([])\nfor step")
    assert steps(chosen) == 'probes.optimizer_step(ov, units="steps/s")'


@pytest.mark.parametrize("numbers", ["trange(num_batches)", "np.arange(0, 99, batch_size)", "tqdm(range(num_batches))"])
def test_the_numbers_of_batches_are_no_batches(numbers: str) -> None:
    assert steps(TORCH.replace("range(100)", numbers)) == 'probes.optimizer_step(ov, units="steps/s")'


def test_a_scaled_loss_is_not_taken_for_the_loss() -> None:
    found = observation(TORCH.replace("loss.backward()", "scaler.scale(loss).backward()"))
    assert found is not None
    assert found.loss is None
    assert any("scaled" in text for text in found.missing)


def test_a_torch_loop_in_a_module_beside_the_script_is_observed_by_its_loader() -> None:
    engine = "import torch\ndef fit(loader, optimizer):\n    for x in loader:\n        x.backward()\n"
    main = "import torch, engine\noptimizer = torch.optim.SGD([])\nengine.fit(torch.utils.data.DataLoader([]), optimizer)\n"
    found = observation_of(read(main, engine=engine))
    assert found is not None
    assert found.steps == 'probes.dataloader(ov, units="samples/s")'


OWN_TRAINER = """
class Trainer:
    def fit(self, loader, optimizer):
        for batch in loader:
            batch.backward()
            optimizer.step()
"""


@pytest.mark.parametrize(
    "imports",
    [
        "import torch\nfrom transformers import AutoModel, AutoImageProcessor",
        "import torch\nfrom lightning import Fabric",
    ],
)
def test_a_trainer_of_the_program_itself_is_not_that_of_a_library(imports: str) -> None:
    call = "Trainer().fit(torch.utils.data.DataLoader([]), torch.optim.SGD([]))\n"
    loop = 'probes.loop(ov, 6, units="samples/s")'
    assert steps(f"{imports}\n{OWN_TRAINER}{call}") == loop
    found = observation_of(read(f"{imports}\nfrom engine import Trainer\n{call}", engine=OWN_TRAINER))
    assert found is not None
    assert found.steps == 'probes.dataloader(ov, units="samples/s")'


@pytest.mark.parametrize(
    ("text", "probe"),
    [
        ("from transformers import Trainer\nclass MyTrainer(Trainer):\n    pass\nMyTrainer()", "trainer"),
        ("import transformers\nclass MyTrainer(transformers.Trainer):\n    pass\nMyTrainer().train()", "trainer"),
        ("from trl import SFTTrainer\nSFTTrainer(model).train()", "trainer"),
        ("import lightning as L\ntrainer = L.Trainer()\ntrainer.fit(model)", "lightning"),
        ("from pytorch_lightning import Trainer\nTrainer().fit(model)", "lightning"),
    ],
)  # fmt: skip
def test_a_trainer_of_a_library_is_known_by_where_it_is_from(text: str, probe: str) -> None:
    assert steps(text).startswith(f"probes.{probe}(ov, ")


def test_a_validation_of_the_trainer_is_a_pause_also_where_its_data_has_no_name() -> None:
    text = "from transformers import Trainer, TrainingArguments as A\nTrainer(m, A(eval_strategy='steps'), c, train, held_out)\n"
    found = observation(text)
    assert found is not None
    assert [pause.name for pause in found.pauses] == ["checkpoint", "validation"]


@pytest.mark.parametrize("name", ["dl", "train_dl", "dl_train", "train_dataloader", "batches"])
def test_the_samples_of_a_loader_are_counted_by_its_usual_names(name: str) -> None:
    assert steps(TORCH.replace("step in range(100)", f"x in {name}")) == 'probes.loop(ov, 4, units="samples/s")'


@pytest.mark.parametrize("key", ["pixel_values", "input_values", "input_features"])
def test_images_and_sounds_of_transformers_trainer_count_as_samples(key: str) -> None:
    text = f"from transformers import Trainer\nTrainer(data_collator=lambda rows: {{'{key}': rows}}).train()\n"
    assert steps(text).startswith('probes.trainer(ov, units="samples/s", items=lambda')


def test_a_validation_of_keras_is_that_of_its_model_for_every_backend() -> None:
    found = observation("import keras\nmodel.fit(x, validation_split=0.1)\n")
    assert found is not None
    assert [pause.target for pause in found.pauses] == ["keras.src.models.model.Model.evaluate"]


def test_a_voirfile_names_the_line_of_all_that_it_observes() -> None:
    reading = read((PROGRAMS / "torch_digits.py").read_text())
    found = observation_of(reading)
    assert found is not None
    text = voirfile_text("digits", reading, found)
    compile(text, "voirfile.py", "exec")
    assert text.splitlines()[5:] == [
        "def instrument_main(ov):",
        '    """Observe the training loop over its batches."""',
        "    # steps: `train_loader`, line 38",
        '    probes.loop(ov, 38, units="samples/s")',
        "    # loss: `loss`, line 43",
        "    probes.backward(ov)",
        "    # validation: `test`, line 78",
        '    probes.pause(ov, "__main__.test", name="validation")',
        "    # found: the loop: `for batch_idx, (data, target) in enumerate(train_loader)`, line 38",
        "    # found: the optimizer: `optim.Adam`, line 74",
    ]


JITTED = """
import jax

@jax.jit
def eval_step(state, batch):
    return state

@jax.jit
def train_step(state, batch):
    return state

def evaluate(state, batches):
    for batch in batches:
        eval_step(state, batch)

def train(state, batches):
    for batch in batches:
        state = train_step(state, batch)
"""


def test_a_loop_that_evaluates_is_not_the_training_loop() -> None:
    assert steps(JITTED + "\ntrain(1, [2])\n") == 'probes.loop(ov, 17, units="steps/s", batch_size=1)'


def test_the_step_of_an_imported_module_is_observed_by_its_name() -> None:
    found = observation_of(read("import lib\nlib.train(1, [2])\n", lib=JITTED))
    assert found is not None
    assert found.steps == 'probes.calls(ov, "lib.train_step", units="steps/s")'
    assert str(found.found) == "`lib.train_step`, lib.py line 18"


def test_lightnings_command_line_trains_by_itself() -> None:
    text = "from lightning.pytorch.cli import LightningCLI\nLightningCLI(Model)\n"
    assert steps(text) == 'probes.lightning(ov, units="samples/s")'


def test_the_command_line_of_spacy_is_observed_by_its_updates() -> None:
    """As `python -m spacy train` starts it."""
    found = observation("if __name__ == '__main__':\n    from spacy.cli import setup_cli\n    setup_cli()\n")
    assert found is not None
    assert found.steps.startswith('probes.calls(ov, "spacy.language.Language.update", ')
    assert [pause.target for pause in found.pauses] == ["spacy.language.Language.evaluate"]
