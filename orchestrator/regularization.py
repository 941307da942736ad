"""The regularization study: which weights of two penalties make a decoder compose what it has only seen apart.

    python -m orchestrator.regularization

Optuna tunes the weights, or the whole decoder, on pseudo-boxes cut out of the training coordinates; the best trials are
confirmed there on fresh seeds. The winner, and four settings to compare with, are then trained over several seeds and judged on
the held-out box that no trial ever sees.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.command import options as opt
from orchestrator.command.cli import App, checked, grouped, main_of, one_of
from orchestrator.command.options import steps_of
from orchestrator.command.progress import Running
from orchestrator.command.ranges import MOST_PLANNED
from orchestrator.command.recipe import short
from orchestrator.command.searched import OF_RUN, read_search, read_weight
from orchestrator.command.subject import option_of, read_pairs
from orchestrator.command.trials import (
    ExportOptuna,
    SearchSeed,
    SeedsPerTrial,
    check_confirmed,
    check_export,
    check_grid,
    check_planned,
    confirmed_table,
    judged_table,
    plan_table,
    trials_table,
    with_export,
    work_left,
)
from orchestrator.engine.estimate import Chain, StepTimes, Work
from orchestrator.errors import UserError, printable
from orchestrator.launch import LaunchOptions, launch
from orchestrator.searches import Latest, Rows, ending
from orchestrator.searches.confirm import FRESH, TUNED, ConfirmAndJudge, ConfirmBest, first_seed_of
from orchestrator.searches.optuna import OBJECTIVES, OptunaSearch
from orchestrator.searches.samplers import PRUNERS
from orchestrator.searches.space import Dimension, in_turn, known_points
from orchestrator.store import Question
from orchestrator.store.questions import TRIALS
from orchestrator.study import PlainStudy
from trainables.regularization import BOXES, COMPARED, DECODER_TASK, REGIONS, TASK, WEIGHTS
from trainables.settings import settings_class, settings_of, spec_fields, value_of, with_values
from trainables.spec import LIMITS, SCHEDULES, RunSpec, Scalar
from trainables.task import Task, load_task

if TYPE_CHECKING:
    from analysis.regularization import Answer

NAME = "regularization"
SAMPLERS = ("tpe", "nsga2", "random", "grid")
CONFIRMED = 4
"""Trials that are confirmed if the user does not say."""
SEARCHES: Mapping[str, Mapping[str, str]] = {
    "weights": {},
    "decoder": {
        "rank": "1|2|4|0", "width": "2|4|8", "depth": "1|2|3", "init": "published|positive", "padding": "0|2|4",
        "lr": "5e-4..1e-2:log", "schedule": "constant|cosine", "ema": "0|0.99|0.999", "beta2": "0.99|0.999",
    },
}  # fmt: skip
"""What is searched besides the two weights, as `--search` of the tune study has it."""

SAID: Mapping[str, str] = {
    **{name: name for name in ("sigma", "rank", "init", "depth", "padding", "ema", "tolerance", "beta2", *WEIGHTS)},
    "width": "channels",
    "holdout": "region",
}
"""Settings of the task that have an option of another kind than `--option`, and its name."""


class Size(NamedTuple):
    """How much a search takes."""

    trials: int
    confirm_seeds: int
    epochs: int

    @classmethod
    def shown(cls, name: str) -> str:
        """What `--help` says of the number that is taken if the user gives none."""
        return f"{getattr(SIZES['weights'], name)}; {getattr(SIZES['decoder'], name)} of decoders"


SIZES = {"weights": Size(trials=20, confirm_seeds=4, epochs=400), "decoder": Size(trials=60, confirm_seeds=16, epochs=150)}
"""Of each kind of search, if the user does not say. A token of a decoder dies in one training of many, so confirmation takes
more seeds. Decoders learn from fewer passes, as their learning rate is searched too."""


@dataclass(slots=True)
class RegularizationStudy(PlainStudy):
    """Tuning, ablation and their figures; a `Study`."""

    task: Task
    search: ConfirmAndJudge
    templates: Sequence[RunSpec]
    """Of the trials: one for each pseudo-box."""
    settings: dict[str, Any]
    export: Path | None = None
    _known: Latest[Answer] = field(init=False)

    def __post_init__(self) -> None:
        self._known = Latest(self._answer_of)

    @property
    def name(self) -> str:
        return NAME

    @property
    def question(self) -> Question:
        tuning, confirming = self.search.tuning, self.search.confirming
        words = {"sampler": tuning.sampler, "pruner": tuning.pruner, "objectives": tuning.objectives}
        seeds = {"seed": tuning.seed, "trial_seeds": list(tuning.seeds), "fresh_seeds": list(confirming.seeds)}
        counts = {"trials": tuning.trials, "confirm": confirming.most}
        return Question(
            study=NAME,
            task_version=self.task.version,
            specs={TRIALS: self.templates, TUNED: self.search.final, **self.search.known},
            search={"space": {d.name: d.text for d in tuning.dimensions}, **words, **seeds, **counts, "known": list(COMPARED)},
            settings=self.settings,
        )

    @property
    def wanted(self) -> Mapping[str, Collection[object]]:
        """Trials have any values of what is searched, so they are told by what they share with the specs that are known."""
        tuning = self.search.tuning
        specs = [*self.templates, *self.search.final, *(spec for known in self.search.known.values() for spec in known)]
        shared = ("task", "dataset", "N", "decoder", "holdout")
        seeds = {*(spec.seed for spec in specs), *tuning.seeds, *self.search.confirming.seeds}
        told: dict[str, Collection[object]] = {name: {getattr(spec, name) for spec in specs} for name in shared}
        return {"task_version": {tuning.task_version}, "seed": seeds} | told

    def answered(self, rows: Rows) -> bool:
        """Whether every setting, the tuned one included, has all its seeds, none of them failed; or, if no trial could be
        chosen, whether no run of the search and of its confirmation failed."""
        found = [row for _, row in self.search.following(rows)]
        if TUNED not in self.search.finals(rows):
            found += self.search.confirming.runs(rows)
        return self.search.finished(rows) and all(row is not None and row["status"] != "failed" for row in found)

    def doubt(self, rows: Rows) -> str | None:
        return self._known.of(rows).doubt()

    def keeps_weights(self, spec: RunSpec) -> bool:
        """Embeddings, images and volumes are drawn from the weights of the final runs."""
        return spec.holdout == self.settings["region"]

    def line(self, row: Mapping[str, Any]) -> str:
        spec = RunSpec.from_dict(row)
        kind = "final" if row["holdout"] == self.settings["region"] else "trial"
        searched = [one.name for one in self.search.tuning.dimensions]
        names = [name for name in (*WEIGHTS, *searched) if kind == "trial" or name in WEIGHTS]
        values = ", ".join(f"{name.removeprefix('lambda_')} {short(value_of(spec, name))}" for name in dict.fromkeys(names))
        run = f"{kind} ({values}) seed {row['seed']}: {ending(row)}"
        if row["ood_mse"] is None:
            return run
        judged = "OOD" if kind == "final" else "validation"
        return f"{run} (MSE on {judged} {row['ood_mse']:.2e}, {row['steps']} steps, {row['seconds']:.1f} s)"

    def table(self, rows: Rows, running: Mapping[str, Running]) -> RenderableType:
        from analysis.tune import interval_text

        confirming = self.search.confirming
        title = f"judged on the OOD {self.settings['region']}: means over seeds, those of the errors geometric"
        with rows.turn:  # all of one moment
            answer = self._known.of(rows)
            tables = [trials_table(self.search.tuning, rows, running)]
            if confirming.seeds and confirming.chosen(rows) and answer.search is not None:
                tables.append(confirmed_table(confirming, rows, running, answer.search.confirmed, interval_text))
            tables.append(judged_table(title, self.search, rows, running, WEIGHTS, answer.summary))
        return Group(*tables, *map(Text, answer.lines()))

    def work_left(self, rows: Rows) -> Work | None:
        times = StepTimes.of(self.search.runs(rows), on_gpu=rows.on_gpu)
        template = self.search.tuning.template
        return self._work(rows, times(template)) if times.knows(template) else None

    def plan(self, rows: Rows) -> tuple[RenderableType, Work]:
        """The runs of the search, of its confirmation and of every setting: done, to do, and their estimated time."""
        template = self.search.tuning.template
        table = plan_table(self.search.confirming, rows, f"{template.max_steps}")
        tuned = self.search.expected(rows).get(TUNED)
        same = next((f": the runs of {setting}" for setting, specs in self.search.known.items() if [*specs] == tuned), "")
        for setting, (ready, missing) in self.search.planned(rows).items():
            name = setting + same * (setting == TUNED)
            table.add_row(name, str(ready), str(missing), str(self.search.final[0].max_steps))
        times = StepTimes.of(self.search.runs(rows), on_gpu=rows.on_gpu)
        times.measure(template, self.task)
        s = self.settings
        searched = ", ".join(_as_options(s["space"], s["N"])) or "nothing"
        pruner = "no" if s["pruner"] == "none" else s["pruner"]
        published = known_points(template, self.search.tuning.dimensions, COMPARED.values())
        what = "settings" if {*WEIGHTS} <= {one.name for one in self.search.tuning.dimensions} else "values"
        in_any_case = f"confirmed in any case: the best of the published {what} that are tried\n"
        where = (
            f"N = {s['N']}, {s['region']}, {s['epochs']} epochs; {s['sampler']} sampler, {pruner} pruner\n"
            f"searched: {searched}\n"
            + in_any_case * bool(published and self.search.confirming.seeds)
            + printable(f"rows go to {s['store']}/runs, weights to {s['store']}/weights, tables and figures to {s['out']}")
        )
        return Group(table, Text(where)), self._work(rows, times(template))

    def _work(self, rows: Rows, step: float) -> Work:
        """What is left, where a step takes so many seconds. The tuned setting waits for the search and its confirmation."""
        searching = work_left(self.search.confirming, rows, step * self.search.tuning.template.max_steps)
        seconds, planned = step * self.search.final[0].max_steps, self.search.planned(rows)
        finals = (seconds, sum(missing for _, missing in planned.values()))
        last = seconds if TUNED in planned and planned[TUNED][1] else 0.0
        return Work([*searching.runs, finals], [Chain(chain.fixed + last) for chain in searching.chains])

    def write(self, rows: Rows, out: Path, *, force: bool) -> Sequence[Path]:
        """Tables, JSON and figures, at the end of a launch; and the Optuna study, if it was asked for and nothing will follow:
        the command that continues takes the name of a new file."""
        from analysis.files import weights_of, write_regularization

        if not force or not self.search.runs(rows):
            return []
        files = write_regularization(self._known.of(rows), out, weights_of(self.settings["store"]))
        if self.export is not None and self.search.finished(rows) and self.answered(rows):
            return with_export(files, self.search.tuning, rows, self.export, f"{NAME}-{self.settings['region']}")
        return files

    def answer(self, rows: Rows) -> dict[str, Any]:
        return self._known.of(rows).to_json()

    def _answer_of(self, rows: Rows) -> Answer:
        """The answer as far as it is known."""
        from analysis.regularization import Answer

        return Answer.of_search(self.search, rows, self.settings)


def _as_options(space: Mapping[str, str], N: int) -> list[str]:
    """What is searched, with the options that give it. A rank of 0 is as large as the grid, which `--rank` says as a number."""
    values = {name: text.replace("|0", f"|{N}") if name == "rank" else text for name, text in space.items()}
    return [f"{option_of(SAID.get(name, name))} {text}" for name, text in values.items()]


app = App({name: option_of(said) for name, said in SAID.items() if said != name})


@app.command()
@grouped
def regularization(
    N: Annotated[int, opt.asked("--N", min=8, max=256, help="Grid size: images are N x N pixels.")] = 32,
    region: Annotated[str, opt.asked(help="The held-out box: `corner` or `center`.")] = "corner",
    search: Annotated[
        str,
        opt.asked(
            help="What is searched: `weights`, those of the two penalties, or `decoder`, also `--rank`, `--channels`, "
            "`--depth`, `--init`, `--padding`, `--ema`, `--lr`, `--schedule` and `--beta2`. What you give yourself is kept as "
            "given."
        ),
    ] = "weights",
    trials: Annotated[
        int | None,
        opt.asked(min=1, max=MOST_PLANNED, help="Number of trials of the search.", show_default=Size.shown("trials")),
    ] = None,
    confirm: Annotated[
        int | None,
        opt.asked(
            min=1,
            max=100,
            help="How many of the best trials are trained on fresh seeds; one of these is then chosen.",
            show_default=f"{CONFIRMED}, or all if there are fewer",
        ),
    ] = None,
    seeds: Annotated[int, opt.asked(min=1, max=1000, help="Seeds per setting that is judged in the box.")] = 5,
    lambda_entropy: Annotated[
        str, opt.asked(help="Weight of the entropy penalty: LOW..HIGH, 0|LOW..HIGH, or one number.")
    ] = "0|0.001..1",
    lambda_variance: Annotated[
        str, opt.asked(help="Weight of the variance penalty: LOW..HIGH, 0|LOW..HIGH, or one number.")
    ] = "0|0.0001..1",
    ablation: Annotated[
        bool, opt.asked(help="Also train four settings to compare: no penalty, each alone, both, with published weights.")
    ] = True,
    objectives: Annotated[
        str, opt.asked(help="What to minimise: `validation`, or `id,validation`, comma-separated: the Pareto front of both.")
    ] = "validation",
    sampler: Annotated[str, opt.searched(help="How Optuna chooses: `tpe`, `nsga2`, `random` or `grid`.")] = "tpe",
    pruner: Annotated[
        str | None,
        opt.searched(
            help="Ends a trial early that is worse than the median of the others (`median`) or not in their best quarter "
            "(`percentile`), or none (`none`).",
            show_default="median; none for two objectives",
        ),
    ] = None,
    seeds_per_trial: SeedsPerTrial = 3,
    confirm_seeds: Annotated[
        int | None,
        opt.searched(
            min=0,
            max=FRESH,
            help="Fresh seeds of each trial that is confirmed; 0: the search alone decides.",
            show_default=Size.shown("confirm_seeds"),
        ),
    ] = None,
    search_seed: SearchSeed = 0,
    export_optuna: ExportOptuna = None,
    sigma: Annotated[float, opt.subject(help="Width of a bump in pixels.")] = 1.5,
    rank: Annotated[int | None, opt.subject(min=1, help="Most modes of a token's matrix.", show_default="N")] = None,
    channels: Annotated[
        int | None, opt.subject(min=1, max=LIMITS["width"][1], help="Channels of a hidden layer.", show_default="2")
    ] = None,
    init: Annotated[
        str | None,
        opt.subject(help="Initial values: `published`, or `positive`, which is our own.", show_default="published"),
    ] = None,
    depth: Annotated[
        int | None, opt.subject(min=0, max=LIMITS["depth"][1], help="Hidden layers.", show_default="2")
    ] = None,
    padding: Annotated[
        int | None,
        opt.subject(min=0, max=16, help="Pixels by which layers are larger than the picture, on each side.", show_default="0"),
    ] = None,
    ema: Annotated[
        float | None,
        opt.subject(min=0, max=0.9999, help="Decay of the average of the weights that is judged; 0: none.", show_default="0"),
    ] = None,
    tolerance: Annotated[int, opt.subject(min=0, help="Pixels by which a peak may miss its place.")] = 1,
    option: opt.TaskOption = None,
    epochs: Annotated[
        int | None, opt.trained(min=1, help="Passes over the training set.", show_default=Size.shown("epochs"))
    ] = None,
    schedule: Annotated[
        str | None, opt.trained(help="Learning rate: `constant`, or `cosine`, falling to 0.", show_default="cosine")
    ] = None,
    batch_size: opt.BatchSize = 32,
    lr: Annotated[float | None, opt.trained("--lr", help="Learning rate of AdamW, above 0.", show_default="0.001")] = None,
    weight_decay: opt.WeightDecay = 1e-4,
    beta2: Annotated[
        float | None,
        opt.trained(min=0, max=0.9999, help="Decay of AdamW's average of squared gradients.", show_default="0.999"),
    ] = None,
    *,
    where: LaunchOptions,
) -> int:
    """Which penalty weights make a low-rank decoder draw bumps at combinations of x and y that it has never seen?

    Tunes the weights of the entropy and the variance penalty, or with `--search decoder` the whole decoder, on pseudo-boxes cut
    out of the training coordinates. A trial takes one seed after another while it is among the best. The best `--confirm`
    trials are trained anew on fresh seeds, and the winner is the best of these. The winner, and four settings for comparison
    (no penalty, each alone, both, with the published weights), are then trained on all training coordinates, over several
    seeds, and judged on the held-out box, which no trial ever sees. Finished runs are kept in the store: the same command
    continues after any interruption.

    **Examples**

    `python -m orchestrator.regularization --N 8 --trials 16 --epochs 150 --lr 0.01`  # a small one, two minutes

    `python -m orchestrator.regularization`  # the whole study

    `python -m orchestrator.regularization --search decoder --rank 1`  # the decoder too, but for its rank

    `python -m orchestrator.regularization --objectives id,validation --sampler nsga2`  # the Pareto front of both errors

    `python -m orchestrator.regularization --export-optuna study.db`  # for optuna-dashboard

    **Exit codes**: 0 answered; 1 not answered (a limit, failed runs, a full disk, a bucket that does not answer, nothing
    learned); 2 a mistake in the command; 130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP.
    """
    one_of("--search", search, tuple(SEARCHES))
    usual = SIZES[search]
    trials = usual.trials if trials is None else trials
    confirm_seeds = usual.confirm_seeds if confirm_seeds is None else confirm_seeds
    epochs = usual.epochs if epochs is None else epochs
    one_of("--sampler", sampler, SAMPLERS)
    one_of("--objectives", objectives, tuple(OBJECTIVES))
    if pruner is None:
        pruner = "median" if len(OBJECTIVES[objectives]) == 1 else "none"
    one_of("--pruner", pruner, PRUNERS)
    check_export(export_optuna, where.store, where.folder(NAME))
    if confirm is not None:
        check_confirmed(confirm, trials)
        if not confirm_seeds:
            told = f"--confirm {confirm} would change nothing, because --confirm-seeds 0 confirms no trial"
            raise UserError(f"{told}: omit --confirm, or give 1 or more fresh seeds")
    confirm = CONFIRMED if confirm is None else confirm
    check_planned((trials, seeds_per_trial), (confirm, confirm_seeds), "--confirm-seeds")
    if rank is not None and rank > N:
        raise UserError(f"--rank must lie in 1..{N}, the grid size, not {rank}")
    if schedule is not None:
        one_of("--schedule", schedule, SCHEDULES)
    region = one_of("--region", region, REGIONS)
    typed = {"rank": rank, "width": channels, "depth": depth, "init": init, "padding": padding, "ema": ema, "lr": lr}
    typed |= {"schedule": schedule, "beta2": beta2}
    given: dict[str, Scalar] = {name: value for name, value in typed.items() if value is not None}
    ranges = {name: read_weight(name, text) for name, text in zip(WEIGHTS, (lambda_entropy, lambda_variance), strict=True)}
    spaces = [f"{name}={text}" for name, text in SEARCHES[search].items() if name not in given]
    path = DECODER_TASK if search == "decoder" or not {padding, ema, beta2} <= {None} else TASK
    task = load_task(path)
    known = settings_of(settings_class(task))
    for name in (pair.partition("=")[0] for pair in option or []):
        if name in SAID:
            raise UserError(f"--option {name} is not the way to give {name} here: use {option_of(SAID[name])}")
    pairs = read_pairs(known, option or [])
    dimensions = [one for one in ranges.values() if isinstance(one, Dimension)]
    dimensions += read_search(spaces, {**OF_RUN, **known})
    of_run = {"lr": given.pop("lr", 1e-3), "schedule": given.pop("schedule", "cosine")}
    weights = {name: found for name, found in ranges.items() if not isinstance(found, Dimension)}
    asked: dict[str, Scalar] = {"sigma": sigma, "tolerance": tolerance, **weights, **given, **pairs}
    first = first_seed_of(search_seed)

    def template(holdout: str, seed: int) -> RunSpec:
        spec = checked(
            RunSpec,
            task=path,
            N=N,
            data_count=0,
            seed=seed,
            **checked(spec_fields, task, asked | {"holdout": holdout}),
            batch_size=batch_size,
            weight_decay=weight_decay,
            stop="budget",
            **of_run,
        )
        count = checked(task.counts, spec).low
        return checked(dataclasses.replace, spec, data_count=count, max_steps=steps_of(epochs, count, batch_size))

    templates = [template(region + box, first) for box in BOXES]
    points = known_points(templates[0], dimensions, COMPARED.values())
    made = partial(OptunaSearch, make=in_turn(templates), seeds=seeds_per_trial, known=points, level=True)
    tuning = checked(made, templates[0], task.version, dimensions, trials, sampler, pruner, objectives, search_seed)
    check_grid(tuning, trials)
    fresh = range(first + FRESH, first + FRESH + confirm_seeds)
    confirming = ConfirmBest(tuning, min(confirm, tuning.trials) if confirm_seeds else 1, fresh if dimensions else ())
    finals = [template(region, seed) for seed in range(seeds)]
    compared = COMPARED if ablation else {}
    known_finals = {setting: [with_values(spec, weights) for spec in finals] for setting, weights in compared.items()}
    spec = finals[0]
    settings = {
        **{"N": N, "region": region, "sigma": sigma, "rank": spec.option("rank") or N, "channels": spec.width},
        **{"depth": spec.depth, "init": spec.option("init"), "tolerance": tolerance, "epochs": epochs},
        **{"schedule": spec.schedule, "batch_size": batch_size, "lr": spec.lr, "weight_decay": weight_decay},
        **{name: value_of(spec, name) for name in ("padding", "ema", "beta2") if path == DECODER_TASK},
        **{"search": search, "space": {one.name: one.text for one in dimensions}, "trials": trials, "sampler": sampler},
        **{"pruner": pruner, "objectives": objectives, "seeds_per_trial": seeds_per_trial, "confirm": confirm},
        **{"confirm_seeds": confirm_seeds, "search_seed": search_seed, "seeds": seeds},
        **where.origin(NAME, task.version),
    }
    judging = ConfirmAndJudge(confirming, known_finals, finals)
    return launch(RegularizationStudy(task, judging, templates, settings, export_optuna), where)


main = main_of(app, "python -m orchestrator.regularization")

if __name__ == "__main__":
    main()
