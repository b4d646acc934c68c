"""Trains word vectors with gensim."""

import logging
import random

from gensim.models import Word2Vec

logging.basicConfig(format="%(asctime)s : %(levelname)s : %(message)s", level=logging.INFO)

random.seed(0)
vocabulary = [f"word{number}" for number in range(3000)]
sentences = [random.choices(vocabulary, k=12) for _ in range(20000)]

model = Word2Vec(sentences=sentences, vector_size=100, window=5, min_count=1, workers=2, epochs=5, seed=0)
print(model.wv.most_similar("word1", topn=3))
