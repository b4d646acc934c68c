"""Boosts trees with XGBoost's own interface, watching a validation set."""

import numpy as np
import xgboost as xgb

rng = np.random.default_rng(0)
x = rng.normal(size=(40000, 30))
y = (x[:, 0] * x[:, 1] + x[:, 2] > 0).astype(int)
dtrain = xgb.DMatrix(x[:32000], label=y[:32000])
dtest = xgb.DMatrix(x[32000:], label=y[32000:])
param = {"max_depth": 6, "eta": 0.3, "objective": "binary:logistic", "eval_metric": "logloss"}
num_round = 60
booster = xgb.train(param, dtrain, num_round, evals=[(dtest, "eval"), (dtrain, "train")], verbose_eval=20)
print("error:", np.mean((booster.predict(dtest) > 0.5) != y[32000:]))
