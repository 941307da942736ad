"""The question as each tool's tutorial would have it answered: `python -m benchmarks.peers.ways LETTER QUESTION RESULT`.

Whatever a tool trains is in the ledger; a way returns only the names of the thresholds for which it ran out of time.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.peers.question import Question, Threshold, passes, read_answer, read_ledger, train

GRACE_SHARE = 0.1
"""No scheduler stops a trial before a tenth of its budget: the tutorials' one epoch of ten."""


def grace(question: Question) -> int:
    return round(GRACE_SHARE * question.max_steps)


def timed(question: Question) -> Iterator[tuple[Threshold, float]]:
    """The thresholds, each with its share of the time that is left."""
    end = time.monotonic() + question.limit
    thresholds = question.thresholds()
    for at, threshold in enumerate(thresholds):
        yield threshold, max(1.0, end - time.monotonic()) / (len(thresholds) - at)


def shuffled(threshold: Threshold, repeat: int) -> list[int]:
    """The grid in random order. In ascending order every trial is better than all before it, and ASHA never stops one."""
    grid = threshold.grid()
    random.Random(repeat).shuffle(grid)
    return grid


def ray_tune(reuse_actors: bool) -> Callable[[Question], list[str]]:
    def way(question: Question) -> list[str]:
        """A grid search with ASHA (reduction factor 2, as in its tutorial), a tuner per threshold, on one embedded Ray."""
        import ray
        from ray import tune
        from ray.tune.schedulers import ASHAScheduler

        ray.init("local", num_cpus=question.cores)
        cut = []
        for index, (threshold, seconds) in enumerate(timed(question)):
            started = time.monotonic()
            tune.Tuner(
                tune.with_resources(ray_trial, {"cpu": 1}),
                param_space={
                    "total": tune.grid_search(shuffled(threshold, question.repeat)),
                    "index": index,
                    "question": str(question.file),
                },
                tune_config=tune.TuneConfig(
                    metric="accuracy",
                    mode="max",
                    scheduler=ASHAScheduler(
                        time_attr="steps", max_t=question.max_steps, grace_period=grace(question), reduction_factor=2
                    ),
                    time_budget_s=seconds,
                    reuse_actors=reuse_actors,
                ),
                run_config=tune.RunConfig(storage_path=str(question.file.with_name("tune"))),
            ).fit()
            if time.monotonic() - started >= seconds:
                cut.append(threshold.name)
        return cut

    return way


def ray_trial(config: dict) -> None:
    from ray import tune

    question = Question.load(config["question"])
    for look in train(question.thresholds()[config["index"]].spec(config["total"]), question.ledger):
        tune.report({"accuracy": look.accuracy, "steps": look.step})


def optuna_objective(question: Question, threshold: Threshold) -> Callable:
    """Least total that passes; one that does not pass is worse than all that do, by what it lacks in accuracy."""
    import optuna

    def objective(trial: optuna.Trial) -> float:
        total = trial.suggest_int("total", threshold.low, threshold.high, log=True)
        finished = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
        for other in trial.study.get_trials(deepcopy=False, states=finished):  # as Optuna's FAQ treats duplicates
            if other.params["total"] == total:
                if other.state == optuna.trial.TrialState.PRUNED:
                    raise optuna.TrialPruned
                return other.value
        best = 0.0
        for look in train(threshold.spec(total), question.ledger):
            if look.passed:
                return total
            best = max(best, look.accuracy)
            trial.report(1 - look.accuracy, look.step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return threshold.high * (2 - best)

    return objective


def optuna_settled(threshold: Threshold) -> Callable:
    """A callback that ends a study once its trials settle the question."""
    import optuna

    def callback(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        state = optuna.trial.TrialState
        ended = study.get_trials(deepcopy=False, states=(state.COMPLETE, state.PRUNED))
        tried = {t.params["total"]: t.state == state.COMPLETE and t.value <= threshold.high for t in ended}
        if read_answer(threshold, tried).settled:
            study.stop()

    return callback


def optuna_study(question: Question, threshold: Threshold, storage: object, seed: int) -> object:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        study_name=threshold.name,
        storage=storage,
        load_if_exists=True,
        sampler=optuna.samplers.TPESampler(seed=seed, constant_liar=True),
        pruner=optuna.pruners.MedianPruner(n_warmup_steps=grace(question)),
    )


def optuna_threads(question: Question) -> list[str]:
    """TPE and the median pruner, a study per threshold, trials in `n_jobs` threads of one process."""
    cut = []
    for threshold, seconds in timed(question):
        study = optuna_study(question, threshold, None, question.repeat)
        started = time.monotonic()
        study.optimize(
            optuna_objective(question, threshold),
            n_trials=len(threshold.grid()),
            timeout=seconds,
            n_jobs=question.cores,
            callbacks=[optuna_settled(threshold)],
        )
        if time.monotonic() - started >= seconds:
            cut.append(threshold.name)
    return cut


def optuna_worker(question: Question, threshold: Threshold, seconds: float, worker: int) -> None:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from optuna.study import MaxTrialsCallback

    storage = JournalStorage(JournalFileBackend(str(question.file.with_name("optuna.log"))))
    study = optuna_study(question, threshold, storage, question.cores * question.repeat + worker)
    study.optimize(
        optuna_objective(question, threshold),
        timeout=seconds,
        callbacks=[MaxTrialsCallback(len(threshold.grid()), states=None), optuna_settled(threshold)],
    )


def optuna_processes(question: Question) -> list[str]:
    """As with threads, but in processes that share a journal file."""
    from joblib import Parallel, delayed

    cut = []
    with Parallel(n_jobs=question.cores) as pool:
        for threshold, seconds in timed(question):
            started = time.monotonic()
            pool(delayed(optuna_worker)(question, threshold, seconds, worker) for worker in range(question.cores))
            if time.monotonic() - started >= seconds:
                cut.append(threshold.name)
    return cut


def syne_tune(question: Question) -> list[str]:
    """The same grid with Syne Tune's ASHA (reduction factor 3, its default), a tuner per threshold, on the local backend,
    which starts a process per trial. Its tuner is asked to look every 0.1 s: with its default, 5 s, it would sleep longer
    than these trials last."""
    from syne_tune import StoppingCriterion, Tuner
    from syne_tune.backend import LocalBackend
    from syne_tune.config_space import choice
    from syne_tune.optimizer.baselines import ASHA

    cut = []
    for index, (threshold, seconds) in enumerate(timed(question)):
        grid = shuffled(threshold, question.repeat)
        scheduler = ASHA(
            {"total": choice(grid), "index": index, "question": str(question.file)},
            metric="accuracy",
            time_attr="steps",
            max_t=question.max_steps,
            grace_period=grace(question),
            do_minimize=False,
            points_to_evaluate=[{"total": total} for total in grid],
            random_seed=question.repeat,
        )
        started = time.monotonic()
        Tuner(
            trial_backend=LocalBackend(entry_point=str(Path(__file__).with_name("syne_trial.py"))),
            scheduler=scheduler,
            stop_criterion=StoppingCriterion(max_wallclock_time=seconds, max_num_trials_started=len(grid) - 1),
            n_workers=question.cores,
            sleep_time=0.1,
            wait_trial_completion_when_stopping=True,
            tuner_name=f"peers-{index}",
        ).run()
        if time.monotonic() - started >= seconds:
            cut.append(threshold.name)
    return cut


def bisect(question: Question, threshold: Threshold, stop: str) -> None:
    """By hand: from N images on (2N where all stripes are among them) double or halve until the outcome changes, then bisect
    the bracket in the logarithm."""

    def ask(total: int) -> bool:
        return passes(threshold.spec(total, stop), question.ledger)

    low, high = threshold.low, threshold.high
    upper = min(max(low, threshold.template.N), high)
    if ask(upper):
        while (lower := max(low, upper // 2)) < upper and ask(lower):
            upper = lower
        if lower == upper:
            return
    else:
        lower = upper
        while lower < high and not ask(upper := min(high, 2 * lower)):
            lower = upper
        if lower == high:
            return
    while not threshold.close(lower, upper):
        middle = min(max(round(math.sqrt(lower * upper)), lower + 1), upper - 1)
        if ask(middle):
            upper = middle
        else:
            lower = middle


def joblib_bisection(stop: str) -> Callable[[Question], list[str]]:
    def way(question: Question) -> list[str]:
        """A bracket per job, the largest grids first, so that no long job is left for the end."""
        from joblib import Parallel, delayed

        thresholds = sorted(question.thresholds(), key=lambda t: (t.template.dataset, -t.template.N))
        Parallel(n_jobs=question.cores)(delayed(bisect)(question, threshold, stop) for threshold in thresholds)
        return []

    return way


def serial_bisection(stop: str) -> Callable[[Question], list[str]]:
    def way(question: Question) -> list[str]:
        """One process, one bracket after the other."""
        for threshold in question.thresholds():
            bisect(question, threshold, stop)
        return []

    return way


WAYS: dict[str, Callable[[Question], list[str]]] = {
    "b": ray_tune(reuse_actors=False),
    "b2": ray_tune(reuse_actors=True),
    "c": optuna_threads,
    "c2": optuna_processes,
    "d": syne_tune,
    "e": joblib_bisection("budget"),
    "e2": joblib_bisection("early"),
    "f": serial_bisection("budget"),
    "f2": serial_bisection("early"),
}


def main() -> None:
    letter, question_file, result_file = sys.argv[1:]
    question = Question.load(question_file)
    cut = WAYS[letter](question)
    ledger = read_ledger(question.ledger)
    answers = {t.name: read_answer(t, ledger.tried.get(t.name, {})).__dict__ for t in question.thresholds()}
    result = {"trainings": ledger.number, "steps": ledger.steps, "cut": cut, "answers": answers}
    Path(result_file).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
