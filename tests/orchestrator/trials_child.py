"""A launch of tiny runs, in experiments of few trials, that tells in JSON what Tune holds near its end."""

import gc
import json
import os

from benchmarks.engine import Clock, through_the_engine
from orchestrator.engine import driver as engine
from orchestrator.engine.cluster import Cluster

RUNS, TRIALS, LOOK = 24, 12, 18


class Looker(Clock):
    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, object] = {}
        self.trained = 0

    def finished(self, row) -> None:
        super().finished(row)
        self.trained += row["status"] != "failed"
        if len(self.times) == LOOK:
            from ray.tune.experiment import Trial  # not before Ray is told how to authenticate

            gc.collect()
            trials = [thing for thing in gc.get_objects() if isinstance(thing, Trial)]
            ended = [trial for trial in trials if trial.is_finished()]
            self.seen = {
                "trials": len(trials),
                "ended": len(ended),
                "runs": sum(len(trial.config["order"].runs) for trial in ended),
                "results": sorted({name for trial in ended for name in trial.last_result}),
                "metrics": sorted({name for trial in ended for name in trial.run_metadata.metric_analysis}),
            }


def main() -> None:
    os.environ.update(engine.TUNE_SETTINGS)
    engine.TRIALS, engine.TRIALS_PER_WORKER = TRIALS, 1
    looker = Looker()
    through_the_engine(RUNS, 2, Cluster(workers=2), 1, looker)  # which looks whether all are stored
    print(json.dumps({**looker.seen, "trained": looker.trained, "finished": len(looker.times)}))


if __name__ == "__main__":
    main()
