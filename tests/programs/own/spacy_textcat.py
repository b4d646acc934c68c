"""Trains a text classifier of spaCy in a loop of one's own over minibatches."""

import random

import spacy
from spacy.training import Example
from spacy.util import compounding, minibatch

random.seed(0)
WORDS = {"SPORT": ["goal", "match", "team", "coach"], "FOOD": ["bread", "soup", "salt", "oven"]}


def make_texts(count):
    for _ in range(count):
        label = random.choice(list(WORDS))
        text = " ".join(random.choices(WORDS[label] + ["the", "a", "good", "old"], k=12))
        yield text, {"cats": {name: float(name == label) for name in WORDS}}


nlp = spacy.blank("en")
textcat = nlp.add_pipe("textcat")
for label in WORDS:
    textcat.add_label(label)
examples = [Example.from_dict(nlp.make_doc(text), cats) for text, cats in make_texts(2000)]
optimizer = nlp.initialize(lambda: examples)
for epoch in range(100):
    random.shuffle(examples)
    losses = {}
    for batch in minibatch(examples, size=compounding(4.0, 32.0, 1.001)):
        nlp.update(batch, sgd=optimizer, drop=0.2, losses=losses)
    print(epoch, losses)
