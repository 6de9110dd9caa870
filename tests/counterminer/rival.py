"""Fits scikit-learn's boosted trees to a csv of items, the same way; prints seconds and the error on the same held-out rows, means of three seeds."""

import sys
import time

import numpy
from sklearn.ensemble import GradientBoostingRegressor

path, trees, rate, depth, subsample = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
table = numpy.loadtxt(path, delimiter=",", skiprows=1)
held = table[:, 0] == 1
outcome, counts = table[:, 1], table[:, 2:]
truth = outcome[held]
seconds, errors = [], []
for seed in range(3):
    model = GradientBoostingRegressor(
        n_estimators=trees, learning_rate=rate, max_depth=depth, subsample=subsample, min_samples_leaf=5, random_state=seed
    )
    begin = time.perf_counter()
    model.fit(counts[~held], outcome[~held])
    seconds.append(time.perf_counter() - begin)
    errors.append(numpy.mean(numpy.abs((truth - model.predict(counts[held])) / truth)))
print(numpy.mean(seconds), numpy.mean(errors))
