"""Compares two classifiers of scikit-learn on generated data."""

from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

X, y = make_classification(n_samples=20000, n_features=40, n_informative=12, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
classifiers = [
    make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
    RandomForestClassifier(n_estimators=60, random_state=0),
]
for clf in classifiers:
    clf.fit(X_train, y_train)
    print(type(clf).__name__, accuracy_score(y_test, clf.predict(X_test)))
