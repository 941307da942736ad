"""A program that passes from 2 N + 3 SEED images on: `script.py COUNT N SEED`. It tells its accuracy as it goes."""

import json
import sys
import time

count, size, seed = map(int, sys.argv[1:])
for step in range(1, 4):
    time.sleep(0.1)
    print(json.dumps({"step": step, "accuracy": min(1.0, 0.9 * count / (2 * size + 3 * seed)) * step / 3}), flush=True)
