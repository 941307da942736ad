"""A support vector machine that learns handwritten digits from few of them, whose pixels are noisy.

A plain script: it knows nothing of the study that starts it. It prints one line, `{"accuracy": 0.93}`.
"""

import argparse
import json

import numpy as np
from sklearn.datasets import load_digits
from sklearn.svm import SVC

parser = argparse.ArgumentParser()
parser.add_argument("--images", type=int, required=True, help="labelled digits to learn from, 10 to 1200")
parser.add_argument("--noise", type=int, default=0, help="level of the noise: its standard deviation in tenths of a grey level")
parser.add_argument("--penalty", type=float, default=10.0, help="C of the support vector machine")
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

random = np.random.default_rng(options.seed)
images, labels = load_digits(return_X_y=True)
order = random.permutation(len(images))
images = images + random.normal(0, 1, images.shape) * options.noise / 10  # of grey levels from 0 to 16
learned, tested = order[: options.images], order[1200:]  # the first images of one order: more contains less
machine = SVC(C=options.penalty, gamma="scale").fit(images[learned], labels[learned])
print(json.dumps({"accuracy": machine.score(images[tested], labels[tested]), "vectors": int(machine.n_support_.sum())}))
