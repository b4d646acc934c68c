"""Twelve programs in the usual style of their frameworks, measured without an edit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.long]

PROGRAMS = ROOT / "tests" / "programs" / "own"
# Of each program: the packages that it needs, and the units in which it is measured. One that ends before half a minute of
# steps, on a machine that is fast enough, is timed as a whole.
NEEDS = {
    "torch_digits.py": (("torch",), "samples/s"),
    "lightning_autoencoder.py": (("torch", "lightning"), "samples/s"),
    "trainer_classifier.py": (("torch", "transformers", "accelerate"), "tokens/s"),
    "accelerate_regression.py": (("torch", "accelerate"), "samples/s"),
    "flax_mlp.py": (("jax", "flax", "optax"), "steps/s"),
    "keras_convnet.py": (("torch", "keras"), "steps/s"),
    "xgboost_trees.py": (("xgboost",), "rounds/s"),
    "lightgbm_regression.py": (("lightgbm", "scikit-learn"), "rounds/s"),
    "sklearn_forest.py": (("scikit-learn",), "s"),
    "spacy_textcat.py": (("spacy",), "words/s"),
    "gensim_word2vec.py": (("gensim",), "s"),
}
INTERPRETER = "OWN_PROGRAMS_PYTHON"
"""A variable that names an interpreter which has packages already; without it an environment is made of each program's."""


def kept() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("MILABENCH_", "CONDA_"))}


@pytest.fixture(scope="session")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that packages are added to, as programs need them."""
    if INTERPRETER in os.environ:
        return Path(os.environ[INTERPRETER]).parent.parent
    folder = tmp_path_factory.mktemp("own") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder


def add_packages(venv: Path, packages: tuple[str, ...]) -> None:
    """Install packages, or skip the test where the index has none of them."""
    if INTERPRETER in os.environ:
        return
    constraints = ROOT / "constraints" / "cpu.txt"
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "-q", "-c", str(constraints), *packages]
    added = subprocess.run(command, capture_output=True, text=True, check=False)
    if added.returncode:
        pytest.skip(f"{', '.join(packages)}: {(added.stderr.strip().splitlines() or ['not installed'])[-1]}")


def tried(words: list[str], environ: dict[str, str], folder: Path) -> str:
    """What `milabench try WORDS` says of a program."""
    command = [sys.executable, "-m", "milabench", "try", "--wait", "--display", "none", *words]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", NEEDS)
def test_a_program_is_measured_without_an_edit(venv: Path, tmp_path: Path, name: str) -> None:
    packages, units = NEEDS[name]
    add_packages(venv, packages)
    shutil.copy(PROGRAMS / name, tmp_path)
    path = f"{venv / 'bin'}:{os.environ['PATH']}"
    said = tried([name], {**kept(), "VIRTUAL_ENV": str(venv), "PATH": path}, tmp_path)
    number, *_, seen, following = said.splitlines()
    match = re.match(rf"{re.escape(name)}: [\d.]+ (\S+) ± ", number)
    assert match is not None, said
    is_whole = seen.startswith("measured: the time of the whole program")
    assert match[1] == ("s" if is_whole else units)
    assert is_whole or seen.startswith("observed: ")
    assert "could not be observed" not in said
    assert following.startswith("next: ")


# Programs that come with a package: the code that makes their data, their command, and the units.
DOCUMENTS = """
import random, spacy
from spacy.tokens import DocBin
random.seed(0)
english, documents = spacy.blank("en"), DocBin()
for _ in range(400):
    document = english.make_doc(" ".join(random.choice("a few words that some texts have".split()) for _ in range(30)))
    document.cats = {"YES": (yes := random.random() < 0.5), "NO": not yes}
    documents.add(document)
documents.to_disk("data.spacy")
spacy.cli.init_config(lang="en", pipeline=["textcat"]).to_disk("config.cfg")
"""
SENTENCES = """
import random
random.seed(0)
with open("corpus.txt", "w") as corpus:
    for _ in range(2000):
        print(*(f"word{int(random.expovariate(0.05))}" for _ in range(20)), file=corpus)
"""
SHIPPED = {
    # It goes on until it is ended: by its defaults it may be done before half a minute.
    "spacy": (
        DOCUMENTS,
        "spacy train config.cfg --paths.train data.spacy --paths.dev data.spacy --training.patience 0 --training.max_steps 0",
        "words/s",
    ),
    "gensim": (SENTENCES, "gensim.scripts.word2vec_standalone -train corpus.txt -output vectors.txt", "s"),
}


@pytest.mark.parametrize("package", SHIPPED)
def test_a_program_of_a_package_is_measured_as_installed(venv: Path, tmp_path: Path, package: str) -> None:
    data, module, units = SHIPPED[package]
    add_packages(venv, (package,))
    python = venv / "bin" / "python"
    subprocess.run([python, "-c", data], cwd=tmp_path, check=True)
    said = tried([str(python), "-m", *module.split()], kept(), tmp_path)
    assert re.match(rf"-m {package}\S*: [\d.]+ {units} ± ", said), said


@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_a_program_that_is_not_python_is_timed(tmp_path: Path) -> None:
    subprocess.run(["g++", "-O2", "-o", str(tmp_path / "heat"), str(PROGRAMS / "heat.cpp")], check=True)
    assert re.match(r"heat: [\d.]+ s ± ", tried(["./heat"], kept(), tmp_path))
