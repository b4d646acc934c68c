"""Boosts trees with LightGBM, with early stopping."""

import lightgbm as lgb
import numpy as np

rng = np.random.default_rng(1)
x = rng.normal(size=(60000, 28))
y = x[:, 0] ** 2 + np.sin(x[:, 1]) + 0.1 * rng.normal(size=60000)
lgb_train = lgb.Dataset(x[:50000], y[:50000])
lgb_eval = lgb.Dataset(x[50000:], y[50000:], reference=lgb_train)
params = {"objective": "regression", "metric": "l2", "num_leaves": 63, "learning_rate": 0.05, "verbose": -1}
gbm = lgb.train(
    params, lgb_train, num_boost_round=200, valid_sets=[lgb_eval], callbacks=[lgb.early_stopping(stopping_rounds=20)]
)
print("rmse:", np.mean((gbm.predict(x[50000:]) - y[50000:]) ** 2) ** 0.5)
