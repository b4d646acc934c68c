"""A simple convnet in Keras 3: model, compile, fit, evaluate."""

import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
from keras import layers

num_classes = 10
input_shape = (28, 28, 1)
batch_size = 128
epochs = 60

rng = np.random.default_rng(0)
y_train = rng.integers(0, num_classes, 6000)
x_train = rng.random((6000, *input_shape), dtype=np.float32) + y_train[:, None, None, None] / 10

model = keras.Sequential(
    [
        keras.Input(shape=input_shape),
        layers.Conv2D(16, kernel_size=(3, 3), activation="relu"),
        layers.MaxPooling2D(pool_size=(2, 2)),
        layers.Flatten(),
        layers.Dense(num_classes, activation="softmax"),
    ]
)
model.compile(loss="sparse_categorical_crossentropy", optimizer="adam", metrics=["accuracy"])
model.fit(x_train, y_train, batch_size=batch_size, epochs=epochs, validation_split=0.1, verbose=2)
score = model.evaluate(x_train[:1000], y_train[:1000], verbose=0)
print("Test loss:", score[0])
