"""The report's page: what it says, that it stands alone, and that a real browser shows all of it."""

import dataclasses
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from markupsafe import escape
from matplotlib.figure import Figure
from matplotlib.image import imread
from safetensors import torch as safetensors

from analysis.figures.generated import FAMILY_NAMES
from analysis.generator_claims import CLAIMS as CLAIMS_ON_GENERATORS
from analysis.generator_verdicts import Verdict
from analysis.measures.circuits import APART, PAIRS
from analysis.measures.quantity import Quantity
from analysis.measures.registry import MEASURES, VERSIONS, applicable, load
from analysis.objectives import Answer
from analysis.report import page as pages
from analysis.report.__main__ import _tell, app
from analysis.report.claims import CLAIMS
from analysis.report.findings import Claim, Condition, Finding, Picture
from analysis.report.generative_claims import GENERATIVE_CLAIMS, beside, judged
from analysis.report.papers import PAPERS
from analysis.report.pictures import FIGURES
from analysis.results import Results
from orchestrator.command.cli import run
from orchestrator.store import MeasureTable, ResultStore, make_row
from orchestrator.store.measures import encode
from tests.analysis.made_objectives import Curve, generator_row, parent_rows, spec_of
from tests.analysis.test_claims import finals, paper_of, power, probes, table_of, world
from tests.analysis.test_generated_figures import LOSSES, USUAL, generators, tokenizers
from tests.conftest import check_refusal
from trainables.bumps import BumpTask
from trainables.generative.chain import GENERATOR, TOKENIZER
from trainables.spec import RunSpec
from trainables.training.precision import quiet_cpu

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NARROW, WIDE = 500, 1280
MEASURING = """<script>addEventListener("load", () => {
  const images = [...document.images].map(i => ({name: i.alt, width: i.naturalWidth, shown: i.getBoundingClientRect().right}));
  const tables = [...document.querySelectorAll(".scroll > table:not(.sortable, #list)")].map(table => table.parentElement);
  const cut = tables.filter(box => box.scrollWidth > box.clientWidth).length;
  const text = JSON.stringify({width: document.documentElement.scrollWidth, images, inner: innerWidth, cut});
  const found = document.createElement("pre"); found.id = "found"; found.textContent = text; document.body.append(found);
});</script>"""
N = 8


def decoders() -> list[dict[str, Any]]:
    """Settings whose figures, taken together, are all figures of decoders."""
    bumps: dict[str, Any] = {"dataset": "bumps", "data_count": 39, "holdout": "center"}
    cnn: dict[str, Any] = {"decoder": "cnn", "encoding": "bump", "depth": 4}
    mlp = {**cnn, "decoder": "mlp", "width": 16}
    stripes: dict[str, Any] = {**cnn, "dataset": "stripes+bumps", "data_count": 20, "holdout": "center"}
    of_bumps = [{**bumps, **one} for one in (cnn, {**cnn, "encoding": "ramp"}, {**cnn, "depth": 2}, mlp)]
    of_stripes = [stripes, {**stripes, **mlp}, *({**stripes, "holdout": "corner", "data_count": n} for n in (0, 10, 50))]
    return of_bumps + of_stripes


def rotation_quantities() -> list[Quantity]:
    """A rotation run as its measure has it, without embeddings."""
    angles, gap = np.arange(0, 360, 10.0), np.linspace(161, 199, 6)
    images = np.random.default_rng(0).random((3, len(gap), N, N))
    arrays = {"angles": angles, "mse_by_angle": 1e-3 + angles / 1e5, "gap_angles": gap}
    arrays |= dict(zip(("gap_outputs", "gap_truth", "gap_mixes"), images, strict=True))
    numbers = {"id_mse": 1e-4, "gap_mse": 1e-2, "closer_to_mix": 1.0, "to_mix": 1e-3, "to_truth": 1e-2}
    return [Quantity(n, value=v) for n, v in numbers.items()] + [Quantity(n, array=a) for n, a in arrays.items()]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real networks, untrained, with weights and measures; a whole scaling and a whole regularization study beside them."""
    quiet_cpu()
    path, task = tmp_path_factory.mktemp("store"), BumpTask()
    with ResultStore(path) as rows, MeasureTable(path) as table:
        for setting in decoders():
            spec = RunSpec(
                task="trainables.bumps:BumpTask", N=N, seed=0, stop="budget", options=tuple(task.defaults.items()),
                **{"width": 4, **setting},
            )  # fmt: skip
            torch.manual_seed(0)
            weights = safetensors.save(task.model(spec).state_dict())
            [row] = rows.append([make_row(spec, task_version=task.version, fixed_count=0, status="missed", reason="budget")])
            rows.save_weights(row["key"], weights)
            decoder = load(row, weights, row["task"])
            for name in applicable(row, row["task"]):
                data = encode(row["key"], name, VERSIONS[name], MEASURES[name](decoder), 0.1)
                table.save(row["key"], name, VERSIONS[name], data)
        options = {"gap_low": 160.0, "gap_high": 200.0}
        spec = RunSpec(
            task="trainables.rotation:RotationTask", dataset="rotation", N=N, data_count=30, seed=0, stop="budget",
            options=tuple(options.items()),
        )  # fmt: skip
        [row] = rows.append([make_row(spec, task_version="1", fixed_count=0, status="missed", reason="budget")])
        data = encode(row["key"], "rotation", VERSIONS["rotation"], rotation_quantities(), 0.1)
        table.save(row["key"], "rotation", VERSIONS["rotation"], data)
        rows.append(probes(power(1.9)))
        rows.append(finals(N=N, max_steps=100))
    return path


@pytest.fixture(scope="module")
def report(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the report of that store, with every figure drawn."""
    out = tmp_path_factory.mktemp("report")
    assert run(app, ["--store", str(store), "--out", str(out), "--no-measure"]) == 0
    return out


def look(page: Path, folder: Path, width: int) -> dict[str, Any]:
    """What a browser with a window of this width makes of a page; the picture of it is `folder / shot.png`."""
    copy = page.parent / f"measured-{width}.html"  # beside the figures
    copy.write_text(page.read_text().replace("</body>", MEASURING + "</body>"))
    assert BROWSER is not None
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={width},2000",
        "--virtual-time-budget=5000", f"--user-data-dir={folder / 'profile'}",
    ]  # fmt: skip
    shot = f"--screenshot={folder / 'shot.png'}"
    dumped, _ = (
        subprocess.run([*command, *words], capture_output=True, text=True, timeout=120, check=True).stdout
        for words in (("--dump-dom", copy.as_uri()), (shot, page.as_uri()))
    )
    found = re.search(r'<pre id="found">(.*?)</pre>', dumped)
    assert found is not None
    return dict(json.loads(found[1].replace("&amp;", "&")))


@pytest.mark.slow(45)
@pytest.mark.browser
@pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on PATH")
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_browser_shows_the_whole_page(report: Path, tmp_path: Path, width: int) -> None:
    found = look(report / "index.html", tmp_path, width)
    assert found["width"] <= found["inner"] == width
    assert found["cut"] == 0, "tables of which part is out of sight until one scrolls"
    assert len(found["images"]) == len(list(report.glob("*.png")))
    assert all(image["width"] > 0 and image["shown"] <= width and image["name"] for image in found["images"])
    shot = imread(tmp_path / "shot.png")
    assert shot.shape[:2] == (2000, width)
    assert shot.std() > 0.05


@pytest.mark.slow(45)
def test_every_figure_is_on_the_page_and_a_file(report: Path) -> None:
    names = {path.stem for path in report.glob("*.svg")}
    assert names == {path.stem for path in report.glob("*.png")}
    assert {name.rsplit("-", 1)[-1] for name in names} >= {
        "errors", "generated", "depth", "bumps", "kernels", "corner", "numbers", "volumes", "gap", "layer", "tuning", "striped",
        "rotation", "scaling",
    }  # fmt: skip
    assert "superposition" not in names, "of networks so small its numbers are none: no run speaks of the claim"
    html = (report / "index.html").read_text()
    assert all(html.count(f'href="{name}.svg"') == html.count(f'<img src="{name}.png"') == 1 for name in names)


@pytest.mark.slow(45)
def test_the_page_needs_nothing_from_elsewhere(report: Path) -> None:
    html = (report / "index.html").read_text()
    papers = ["https://arxiv.org/abs/2501.18797", "https://arxiv.org/abs/2510.03075"]
    assert re.findall(r'(?:src|href)="(https?:[^"]*)"', html) == papers
    assert re.findall(r"<script([^>]*)>", html) == ["", ' src="runs/index.js" async']
    assert "url(" not in html


@pytest.mark.slow(45)
def test_every_claim_is_listed_with_its_rule_its_verdict_and_its_numbers(report: Path) -> None:
    html = (report / "index.html").read_text()
    for claim in CLAIMS:
        assert html.count(f'href="#{claim.id}"') == html.count(f'<section id="{claim.id}">') == 1
        assert html.count(str(escape(claim.title))) == 2
        assert str(escape(claim.rule)) in html
    verdicts = {claim["id"]: claim["verdict"] for claim in json.loads((report / "claims.json").read_text())}
    assert verdicts["scaling"] == verdicts["regularization"] == "reproduced"
    assert verdicts["cubic"] == "not reproduced"
    assert {verdict for name, verdict in verdicts.items() if name not in ("scaling", "regularization", "cubic")} == {
        "not enough runs"
    }
    assert "2 reproduced" in html
    assert '<td class="n">≤ 0.001</td>' in html


@pytest.mark.slow(45)
def test_the_same_store_gives_the_same_page_whatever_the_user_likes_figures_to_be(
    report: Path, store: Path, tmp_path: Path
) -> None:
    with matplotlib.rc_context({"text.usetex": True, "font.size": 30}):
        assert run(app, ["--store", str(store), "--out", str(tmp_path), "--no-measure"]) == 0
    assert (tmp_path / "index.html").read_bytes() == (report / "index.html").read_bytes()


@pytest.mark.slow(2)
def test_what_is_wrong_with_a_store_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "store" / "runs").mkdir(parents=True)
    (tmp_path / "store" / "runs" / "cut.parquet").write_bytes(b"PAR1")
    for words in ([], ["--no-measure"]):
        run(app, ["--store", str(tmp_path / "store"), "--out", str(tmp_path / "out"), *words])
        told = " ".join(capsys.readouterr().err.split())
        assert told.count("warning:") == told.count("cut.parquet") == 1, told


def test_the_files_of_a_page_are_told_in_printable_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ResultStore(tmp_path / "store").close()
    assert run(app, ["--store", str(tmp_path / "store"), "--out", str(tmp_path / "\x1b[31m\nx")]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[1:] == [rf"{tmp_path}/\x1b[31m\nx/{name}" for name in ("index.html", "claims.json")]


def test_an_empty_store_gives_a_page_with_the_commands_that_fill_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ResultStore(tmp_path / "store").close()
    assert run(app, ["--store", str(tmp_path / "store"), "--out", str(tmp_path / "out")]) == 0
    html = (tmp_path / "out" / "index.html").read_text()
    assert "16 not enough runs" in html
    store = tmp_path / "store"
    assert all(f"<code>{claim.command} --store {store} --dry-run</code>" in html for claim in CLAIMS)
    assert "<img" not in html
    told, *files = capsys.readouterr().out.splitlines()
    assert told == "not enough runs 16 claims of papers: no run counts"
    assert [Path(line).name for line in files] == ["index.html", "claims.json"]
    assert len(re.findall(r"<h1\b", html)) == 1


def inside(seeds: int) -> pd.DataFrame:
    """What was measured inside of maskgit, without the loss and with it, which makes all of it less."""
    shared = [(f"jaccard_{a}_{b}", np.nan, 0.4 if (a, b) in APART["one_apart"] else 0.3) for a, b in PAIRS]
    made = []
    for word, times in (("", 1.0), ("one", 0.9), ("three", 0.9)):
        options = {"codes": 16, **LOSSES.get(word, {})}
        for seed in range(seeds):
            key = json.dumps([GENERATOR, "maskgit", "vq", seed, *([word] if word else [])])
            run = {**USUAL, "key": key, "task": GENERATOR, "decoder": "maskgit", "encoding": "vq", "seed": seed}
            run |= {"options": options, "measure": "circuits", "array": None}
            for name, layer, value in [*shared, *(("overlap", block, 0.5) for block in range(1, 5))]:
                made.append({**run, "quantity": name, "layer": layer, "value": times * value})
                made.append({**run, "quantity": f"untrained_{name}", "layer": layer, "value": value})
    return table_of(made)


def generative(seeds: int = 1, **curves: Mapping[str, Curve]) -> Results:
    """Measured generators of three families, with the runs that they need; their curves by `dit_vae` and
    so on, or `dit_vae_0` of a seed, else all 1."""
    made, keys = [], {}
    told_less = [("dit", "vq", word) for word in ("dropout", "quantised", "both")]
    families = [*FAMILY_NAMES, *told_less, *(("maskgit", "vq", word) for word in LOSSES)]
    for family, tokens, *word in families:
        for seed in range(seeds):
            about: dict[str, Any] = LOSSES.get(word[0], {"conditioning": word[0]}) if word else {}
            name = "_".join([family, tokens, *word])
            drawn = curves.get(f"{name}_{seed}", curves.get(name, {}))
            row = generator_row(spec_of(family, tokens, seed, depth=4, **about), **drawn)
            keys[json.dumps([GENERATOR, family, tokens, seed, *word])] = row["key"]
            keys[json.dumps([TOKENIZER, "linear", tokens, seed])] = row["parents"]["tokenizer"]
            made += [row, *parent_rows(RunSpec.from_dict(row))]
    runs = {row["key"]: {**row, "seconds": 60.0, "family": "one"} for row in made}
    table = pd.concat([generators(seeds, families), tokenizers(seeds), inside(seeds)], ignore_index=True)
    return Results([*runs.values()], table.assign(key=table["key"].map(keys)))


SECTION = re.compile(r"<section id=.*?</section>", re.DOTALL)


def test_a_store_without_generators_has_what_they_cost_and_none_of_their_claims() -> None:
    report = pages.Report.of(PAPERS, Results([], table_of([])))
    first, second = report.html().split('<h2 class="part" id="visual-generative-models">')
    assert [claim["id"] for claim in report.to_json()] == [claim.id for claim in CLAIMS]
    assert len(SECTION.findall(first)) == len(CLAIMS)
    assert "<section" not in second
    assert "verdict" not in second
    assert "arXiv 2510.03075" in second
    assert "<code>python -m orchestrator.objectives --store results</code></td><td>40 to 80 minutes on two cores" in second
    assert "<code>make paper STORE=results</code></td><td>75 minutes" in first


@pytest.mark.slow(10)
@pytest.mark.usefixtures("quick_oracle")
def test_generators_bring_their_claims_and_their_figures_and_change_no_other_claim(tmp_path: Path) -> None:
    results = generative()
    pairs = results.table["quantity"].str.startswith("unseen_pairs")
    results = Results(results.runs, results.table.assign(value=results.table["value"].where(~pairs, 0.1)))
    report = pages.Report.of(PAPERS, results)
    assert report.errors == []
    files = {path.name for path in report.write(tmp_path)}
    first, second = report.html().split('<h2 class="part" id="visual-generative-models">')
    assert SECTION.findall(first) == SECTION.findall(pages.Report.of(PAPERS, Results([], table_of([]))).html())
    found = [claim["id"] for claim in report.to_json()]
    assert found == [*(claim.id for claim in CLAIMS), *(claim.id for claim in GENERATIVE_CLAIMS)]
    figures = {
        "tokenizer-does-not-decide": ["samples", "reconstructions"],
        "continuous-beats-categorical": ["samples", "retrieval", "coverage"],
        "masking-is-not-it": ["samples"],
        "categorical-forgets": [],
        "abrupt-on-vq": [],
        "conditioning": ["conditioning", "samples"],
        "dropout-hurts": ["conditioning"],
        "quantised-unstable": ["conditioning"],
        "jepa-helps": ["samples"],
        "jepa-many-layers": ["samples"],
        "jepa-heads": ["overlap"],
        "jepa-circuits": ["jaccard"],
    }
    sections = SECTION.findall(second)
    assert [re.findall(r'href="([^"]+)\.svg"', section) for section in sections] == [
        [f"{claim}-{name}" for name in names] for claim, names in figures.items()
    ]
    assert {f"{claim}-{name}.png" for claim, names in figures.items() for name in names} < files
    assert all("not enough runs" in section and "<th>condition" not in section for section in sections)
    assert "paper’s figures" not in second


@pytest.mark.slow(5)
@pytest.mark.usefixtures("quick_oracle")
def test_verdicts_on_generators_stand_on_the_page() -> None:
    """Level 2 comes slowly on a vae, at once on codes, and not at all with a categorical loss, which also loses level 1."""
    ramp, step = [look / 10 for look in range(8)] + [0.75, 0.75], [0.0] * 6 + [0.8] * 4
    forgets = {"level1": [0.5, 0.9, 0.9, *[0.5] * 7], "level2": 0.1}
    shares = {"dropout": 0.3, "both": 0.1, "quantised": 0.5, "quantised_1": 0.2}
    others = {f"dit_vq_{word}": {"level2": share} for word, share in shares.items()}
    others |= {"maskgit_vq_one": {"level2": 0.3}, "maskgit_vq_three": {"level2": 0.4}}
    results = generative(3, dit_vae={"level2": ramp}, dit_vq={"level2": step}, maskgit_vq=forgets, **others)
    report = pages.Report.of(PAPERS, Results(results.runs, table_of([])))
    told = {claim["id"]: (claim["verdict"], claim["seeds"]) for claim in report.to_json()[len(CLAIMS) :]}
    assert told == dict.fromkeys(CLAIMS_ON_GENERATORS, ("not enough runs", 0)), "gate 3 is not known of codes"
    table = results.table[results.table["measure"].isin(["tokens", "circuits", "generated"])]
    table = table.assign(value=table["value"].where(~table["quantity"].str.startswith("unseen_pairs"), 0.1), array=None)
    report = pages.Report.of(PAPERS, Results(results.runs, table[~table["value"].isna()]))
    told = {claim["id"]: (claim["verdict"], claim["seeds"]) for claim in report.to_json()[len(CLAIMS) :]}
    assert told == dict.fromkeys(CLAIMS_ON_GENERATORS, ("reproduced", 3))
    numbers = {claim["id"]: (claim["seen"], claim["comparisons"]) for claim in report.to_json()[len(CLAIMS) :]}
    seen, [compared] = numbers["continuous-beats-categorical"]
    assert seen.startswith("level 2 0.80 of dit, 0.10 of maskgit, 0.70 less; needed: ")
    assert compared["numbers"] == pytest.approx({"dit": 0.8, "maskgit": 0.1})
    assert (compared["about"], compared["verdict"], compared["seeds"]) == ("", "reproduced", 3)
    one, three = numbers["jepa-helps"][1]
    assert [found["numbers"]["level2_jepa"] for found in (one, three)] == pytest.approx([0.3, 0.4])
    assert one["about"] != three["about"]
    section = SECTION.findall(report.html())[len(CLAIMS) + 4]
    assert '<span class="verdict reproduced">reproduced</span>' in section
    assert "Seen: level 2 rises within" in section
    assert "--dry-run" not in section


@pytest.mark.parametrize(
    ("verdicts", "given"),
    [
        (["pass", "fail"], "depends"),
        (["not enough", "fail", "pass"], "depends"),
        (["not enough", "fail", "fail"], "not reproduced"),
        (["not enough", "pass"], "reproduced"),
    ],
)
def test_a_claim_has_a_verdict_where_all_settings_that_have_one_agree(
    verdicts: list[str], given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [Verdict("categorical-forgets", word, "so", about=f"setting {n}") for n, word in enumerate(verdicts)]
    monkeypatch.setattr(Answer, "verdicts_of", lambda *_: found)
    finding = judged("categorical-forgets", {}, Results([], table_of([])))
    assert finding.verdict == given
    assert finding.seen.startswith("it depends on the settings; setting 0: ") is ({"pass", "fail"} <= set(verdicts))


def test_the_page_tells_the_first_of_many_comparisons_and_the_numbers_all(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["not enough"] * 10 + ["fail"] * 20
    found = [Verdict("categorical-forgets", word, "so", about=f"setting {n}") for n, word in enumerate(words)]
    monkeypatch.setattr(Answer, "verdicts_of", lambda *_: found)
    finding = judged("categorical-forgets", {}, Results([], table_of([])))
    [claim] = (one for one in GENERATIVE_CLAIMS if one.id == "categorical-forgets")
    report = pages.Report([pages.Part(paper_of(claim), [(claim, finding, [])])], 0, 0.0)
    [told] = report.to_json()
    assert told["seen"].count("setting ") == len(told["comparisons"]) == 30
    assert told["seen"].startswith("setting 0: not enough runs: so; ")
    [shown] = re.findall("<p>Seen: (.*)</p>", report.html())
    assert shown.startswith("setting 10: not reproduced: so; setting 11: "), "those that have a verdict come first"
    assert shown.endswith("setting 21: not reproduced: so; and 18 further comparisons, which claims.json has.")
    assert shown.count("setting ") == 12


@pytest.mark.usefixtures("quick_oracle")
def test_the_comparison_with_most_runs_that_count_is_told_first() -> None:
    several = [spec_of("maskgit", "vq", max_steps=100 * n) for n in range(1, 14)]
    several += [spec_of("maskgit", "vq", seed, max_steps=5000) for seed in range(3)]
    runs = {row["key"]: {**row, "seconds": 60.0, "family": "one"} for row in map(generator_row, several)}
    finding = judged("categorical-forgets", {}, Results([*runs.values()], table_of([])))
    assert finding.shown.startswith("maskgit on vq, max steps 5000: not enough runs: maskgit on vq has 3 finished seeds of 3")


def found_of(claim: str, rows: list[dict[str, Any]], unseen: float = 0.1) -> Finding:
    """What is said of a claim, by these generators and by what they need."""
    made = [*rows, *(parent for row in rows for parent in parent_rows(RunSpec.from_dict(row)))]
    runs = {row["key"]: {**row, "seconds": 60.0, "family": "one"} for row in made}
    shares = {"unseen_codes_111": 0.0, "unseen_pairs_111": unseen, "unseen_images_111": 0.5}
    measured = [
        {**run, "measure": "tokens", "quantity": name, "layer": None, "value": share, "array": None}
        for run in runs.values() if run["task"] == TOKENIZER for name, share in shares.items()
    ]  # fmt: skip
    return judged(claim, {}, Results([*runs.values()], table_of(measured)))


@pytest.mark.usefixtures("quick_oracle")
def test_figures_beside_a_claim_are_of_the_runs_that_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[set[str]] = []

    def of_keys(claim: str, keys: set[str], *_: Any) -> list[Picture]:
        drawn.append(keys)
        return [Picture("samples", "pictures", Figure)]

    monkeypatch.setattr("analysis.report.generative_claims.beside", of_keys)
    rows = drawing(0.9, 0.1)
    trying = [generator_row(spec_of(family, "vq", 100)) for family in ("dit", "maskgit")]
    found = found_of("continuous-beats-categorical", [*rows, *trying])
    assert (found.verdict, [one.alt for one in found.pictures]) == ("reproduced", ["pictures"])
    few = found_of("continuous-beats-categorical", [*drawing(0.9, 0.1, seeds=2), *trying])
    told = "pictures; of all runs that there are, as too few count for a verdict"
    assert (few.verdict, [one.alt for one in few.pictures]) == ("not enough runs", [told])
    assert drawn[0] == {row["key"] for row in rows}
    assert len(drawn[1]) == 6
    bad = found_of("continuous-beats-categorical", rows, unseen=0.3)
    assert (bad.verdict, [one.alt for one in bad.pictures], len(drawn[2])) == ("not enough runs", [told], 6)
    split = [generator_row(spec_of(family, "vq", seed, holdout="fail1")) for family in ("dit", "maskgit") for seed in range(3)]
    none = found_of("continuous-beats-categorical", split)
    assert (none.seen, [one.alt for one in none.pictures]) == ("no composition is of level 2 in this split", ["pictures"])


@pytest.mark.usefixtures("quick_oracle")
def test_a_claim_that_depends_on_settings_is_told_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    [claim] = (one for one in GENERATIVE_CLAIMS if one.id == "continuous-beats-categorical")
    wide = [
        generator_row(spec_of(family, "vq", seed, width=64), level2=0.9) for family in ("dit", "maskgit") for seed in range(3)
    ]
    finding = found_of(claim.id, [*drawing(0.9, 0.1), *wide])
    assert (finding.verdict, finding.seeds, finding.speaks) == ("depends", 3, True)
    assert [one.verdict for one in finding.comparisons] == ["reproduced", "not reproduced"]
    paper = dataclasses.replace(PAPERS[1], claims=(claim,))
    report = pages.Report([pages.Part(paper, [(claim, finding, [])])], 12, 1.0)
    html = report.html()
    assert '<span class="verdict depends">1 depends</span>' in html
    assert "No run is missing" not in html
    [told] = report.to_json()
    assert (told["verdict"], told["commands"]) == ("depends", [])
    assert told["seen"].startswith("it depends on the settings; dit on vq, width 32 against maskgit on vq, width 32: reprod")
    _tell(report)
    assert capsys.readouterr().out == "depends         continuous-beats-categorical  3 seeds\n"


def test_a_study_of_two_grid_sizes_is_told_what_it_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    """As the first study of the README leaves a store: it speaks of a claim, and further seeds would not decide that."""
    report = pages.Report.of([PAPERS[0]], Results(probes(power(1.9), sizes=(16, 24)), table_of([])))
    [finding] = [finding for claim, finding, _ in report.sections if claim.id == "scaling"]
    assert (finding.verdict, finding.speaks, report.speaks) == ("not enough runs", True, True)
    assert "<summary>The claims and their verdicts</summary>" in report.html()
    assert not pages.Report.of([PAPERS[0]], Results([], table_of([]))).speaks
    _tell(report)
    assert capsys.readouterr().out.splitlines() == [
        "not enough runs scaling                       too few grid sizes  figures 4c",
        "not enough runs 15 claims of papers: no run counts",
    ]


def drawing(dit: float, maskgit: float, seeds: int = 3, **about: Any) -> list[dict[str, Any]]:
    """Generators on codes with these shares at level 2."""
    shares = {"dit": dit, "maskgit": maskgit}
    return [
        generator_row(spec_of(family, "vq", seed), level2=share, **about)
        for family, share in shares.items() for seed in range(seeds)
    ]  # fmt: skip


@pytest.mark.usefixtures("quick_oracle")
def test_seeds_are_those_that_the_verdict_rests_on() -> None:
    of_others = [generator_row(spec_of("dit", "vq", seed, width=64)) for seed in range(7)]
    found = found_of("continuous-beats-categorical", [*drawing(0.9, 0.1, seeds=4), *of_others])
    assert (found.verdict, found.seeds) == ("reproduced", 4)
    few = found_of("continuous-beats-categorical", [*drawing(0.9, 0.1, seeds=2), *of_others])
    assert (few.verdict, few.seeds) == ("not enough runs", 2)
    assert found_of("continuous-beats-categorical", drawing(0.9, 0.1), unseen=0.3).seeds == 0


@pytest.mark.parametrize(
    ("about", "unseen", "why", "seeds"),
    [
        ({"dit": 0.9, "seen": 0.5}, 0.1, "dit on vq draws 0.50 of what it has seen, under 0.85", 3),
        ({"dit": 0.5}, 0.1, "gate 5 is not met: dit on the same tokens has level 2 0.50, under 0.6", 3),
        ({"dit": 0.9}, 0.3, "dit on vq has 3 finished seeds of 3, gate 3 is not met by 3", 5),
        ({"dit": 0.9, "oracle2": 0.2}, 0.1, "the judges agree on 30% of the pictures, under 95%, and differ: ", 3),
    ],
)
@pytest.mark.usefixtures("quick_oracle")
def test_no_command_trains_what_is_there(about: dict[str, Any], unseen: float, why: str, seeds: int) -> None:
    [claim] = (one for one in GENERATIVE_CLAIMS if one.id == "continuous-beats-categorical")
    report = pages.Report([], 1, 1.0, "a store")
    finding = found_of(claim.id, drawing(maskgit=0.1, **about), unseen)
    told, commands = report.missing(claim, finding)
    assert finding.verdict == "not enough runs"
    assert told.startswith(f"No run is missing: {why}")
    assert commands == []
    few = report.missing(claim, found_of(claim.id, drawing(maskgit=0.1, seeds=2, **about), unseen))
    asked = "--families dit,maskgit --tokenizers vq --tier smoke --steps 1000 --precision float32"
    [command] = few[1]
    assert command == f"python -m orchestrator.objectives {asked} --seeds {seeds} --store 'a store'"


@pytest.mark.usefixtures("quick_oracle")
def test_runs_that_a_gate_keeps_out_are_told_and_not_drawn() -> None:
    [claim] = (one for one in GENERATIVE_CLAIMS if one.id == "continuous-beats-categorical")
    found = {unseen: found_of(claim.id, drawing(0.9, 0.1), unseen) for unseen in (0.1, 0.3)}
    assert {unseen: (one.speaks, one.unmet) for unseen, one in found.items()} == {0.1: (True, []), 0.3: (False, [3])}
    for unseen, finding in found.items():
        shown = dataclasses.replace(finding, pictures=[Picture("one", "a picture", lambda: Figure(figsize=(1, 1)))])
        alone = dataclasses.replace(claim, evaluate=lambda _, shown=shown: shown)  # type: ignore[misc]
        report = pages.Report.of([paper_of(alone)], Results([], table_of([])))
        html = report.html()
        assert ("<img" in html) is (unseen == 0.1)
        assert ("There are runs, but gate 3 is not met, so no claim counts them." in html) is (unseen == 0.3)
        assert "No run of this store speaks of a claim" not in html
    several = dataclasses.replace(found[0.3], unmet=[1, 2, 3])
    assert pages.Report([pages.Part(paper_of(claim), [(claim, several, [])])], 1, 1.0).unmet == "gates 1, 2 and 3 are not met"


def test_the_command_of_a_claim_trains_all_its_sides() -> None:
    for claim in GENERATIVE_CLAIMS:
        words = shlex.split(claim.command)
        families = {side["decoder"] for side in CLAIMS_ON_GENERATORS[claim.id].sides.values()}
        given = words[words.index("--families") + 1].split(",") if "--families" in words else []
        usual = {"objectives": ["dit", "maskgit"], "conditioning": ["dit"], "jepa": ["maskgit", "dit"]}
        assert families <= set(given or usual[words[2].rpartition(".")[2]]), claim.id


def test_the_runs_of_a_store_are_read_once_for_all_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    read, of_store = [], Answer.of_store
    monkeypatch.setattr(Answer, "of_store", lambda *given: read.append(given) or of_store(*given))
    for results in (Results([], table_of([])), Results([], table_of([]))):
        for claim in GENERATIVE_CLAIMS:
            claim.evaluate(results)
    assert len(read) == 2


def test_figures_beside_a_claim_are_of_its_own_runs_and_of_their_tokenizers() -> None:
    results = generative(seeds=2)
    keys = {run["key"] for run in results.runs if run["decoder"] == "dit" and run["seed"] == 0 and run["encoding"] == "vq"}
    both = {"generated": ("samples",), "tokens": ("reconstructions",)}
    found = beside("c", keys, both, results)
    assert [picture.name for picture in found] == ["c-samples", "c-reconstructions"]
    samples, tokens = (picture.draw.args[0] for picture in found)  # type: ignore[attr-defined]
    assert set(samples["key"]) == keys
    assert (set(tokens["task"]), set(tokens["seed"]), set(tokens["encoding"])) == ({TOKENIZER}, {0}, {"vq"})
    assert beside("c", [], both, results) == []
    assert beside("c", keys, both, Results([], table_of([]))) == []


def test_figures_beside_a_claim_are_of_seeds_that_were_measured_on_all_sides() -> None:
    results = generative(seeds=3)
    runs = [run for run in results.runs if run["encoding"] == "vq" and run["decoder"] in ("dit", "maskgit")]
    runs = [run for run in runs if run["options"]["conditioning"] == "full" and not run["options"].get("jepa")]
    figures = {"generated": ("samples", "retrieval"), "tokens": ("reconstructions", "coverage")}

    def drawn(dit: set[int], maskgit: set[int], *whole: bool) -> tuple[list[list[int]], list[str]]:
        """The seeds of each figure, and the ends of the captions."""
        measured = {"dit": dit, "maskgit": maskgit}
        keys = [run["key"] for run in runs if run["seed"] not in measured[run["decoder"]]]
        one = dataclasses.replace(results, table=results.table[~results.table["key"].isin(keys)])
        found = beside("c", {run["key"] for run in runs}, figures, one, *whole)
        names = [picture.name.removeprefix("c-") for picture in found]
        ends = [one.alt.removeprefix(FIGURES[name][1]) for one, name in zip(found, names, strict=True)]
        return [sorted({*one.draw.args[0]["seed"]}) for one in found[:2]], ends  # type: ignore[attr-defined]

    every = {0, 1, 2}
    assert drawn(every, every) == ([[0, 1, 2]] * 2, ["; of seed 0", "", "; of seed 0", ""])
    assert drawn(every, {2}) == ([[2]] * 2, ["; of seed 2", "; of 1 of 3 seeds that count", "; of seed 0", ""])
    apart = "; of 2 of 3 seeds that count, not the same on all sides"
    assert drawn({0}, {2}) == ([[0, 2]] * 2, ["; of seeds 0 and 2", apart, "; of seed 0", ""])
    assert drawn(every, {2}, False) == ([[0, 1, 2]] * 2, ["; of seeds 0 and 2", "", "; of seed 0", ""])


def test_coverage_is_that_of_the_pictures_of_the_generators_where_it_was_measured() -> None:
    """As gate 3 has it; those of two objectives on the same tokens and pictures are the same."""
    rows = [generator_row(spec_of(family, "vq", seed)) for family in ("dit", "maskgit") for seed in range(2)]
    rows.append(generator_row(dataclasses.replace(spec_of("dit", "vq"), data_count=16)))  # other pictures, the same tokens
    parents = [parent for row in rows for parent in parent_rows(RunSpec.from_dict(row)) if parent["task"] == TOKENIZER]
    runs = {row["key"]: {**row, "seconds": 60.0, "family": "one"} for row in (*rows, *parents)}
    keys = {row["key"] for row in rows}

    def drawn(*own: dict[str, Any]) -> list[str]:
        of = {row["key"]: "tokens" for row in parents} | {row["key"]: "generated" for row in own}
        about = {"quantity": "unseen_codes_111", "layer": None, "value": 0.0, "array": None}
        table = table_of([{**runs[key], "measure": measure, **about} for key, measure in of.items()])
        (picture,) = beside("c", keys, {"tokens": ("coverage",)}, Results([*runs.values()], table))
        return sorted(picture.draw.args[0]["key"])  # type: ignore[attr-defined]

    first, second = (rows[seed]["parents"]["tokenizer"] for seed in (0, 1))
    assert drawn() == sorted([first, second])
    assert drawn(rows[0], rows[2]) == sorted([rows[2]["key"], second, first]), "the tokenizer's for the other pictures"
    assert drawn(*rows) == sorted([rows[2]["key"], rows[3]["key"], rows[4]["key"]])


@pytest.mark.parametrize("name", FIGURES)
def test_a_caption_says_what_is_a_mean(name: str) -> None:
    told = FIGURES[name][1]
    assert ("lines: means over the seeds, bands: their range" in told) is (name in ("by-layer", "volume-gap", "striped"))
    short = name in ("superposition", "kernel-numbers", "by-bumps")
    assert ("short lines: means over the seeds" in told) is short
    of_one = ("errors", "generated", "by-depth", "by-bumps", "superposition", "volumes")
    assert ("of the lowest seed" in told) is (name in of_one)


def test_figures_beside_a_claim_are_of_the_comparison_with_most_seeds() -> None:
    """Two seeds of tokens of 16 codes, one of 32: neither is enough for a verdict."""
    rows = [generator_row(spec_of(family, "vq", seed, codes=codes)) for family in ("dit", "maskgit")
            for codes, seeds in ((32, 1), (16, 2)) for seed in range(seeds)]  # fmt: skip
    runs = [{**row, "seconds": 60.0, "family": "one"} for row in rows]
    drawn = [{**row, "measure": "generated", "quantity": "x", "layer": 0, "value": 0.0, "array": None} for row in rows]
    found = judged("continuous-beats-categorical", {"generated": ("samples",)}, Results(runs, table_of(drawn)))
    (picture,) = found.pictures
    shown = picture.draw.args[0]  # type: ignore[attr-defined]
    assert {options["codes"] for options in shown["options"]} == {16}
    assert len(shown) == 4


def test_a_store_that_is_not_there_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--store", str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")]
    check_refusal(app, arguments, "has no runs", tmp_path, capsys)


@pytest.mark.parametrize("others", [["store"], ["other", "./link"], ["other", "other"]])
def test_a_store_beside_itself_is_a_mistake(
    others: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("store", "other", "work"):
        (tmp_path / name / "runs").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "store")
    monkeypatch.chdir(tmp_path)
    twice = {"other": "'other' and 'other'"}.get(others[-1], f"'store' and '{others[-1]}'")
    arguments = ["--store", "store", *(word for one in others for word in ("--with", one)), "--out", "work/out"]
    assert run(app, arguments) == 2
    assert capsys.readouterr() == ("", f"error: {twice} are the same store: there is nothing to compare\n")
    assert not (tmp_path / "work" / "out").exists()


REFUSED = {
    "": "writes to 'OUT/runs', which is where the store keeps its runs",
    "weights": "is where the store keeps its weights",
    "measures/page": "is where the store keeps its measures",
}


@pytest.mark.parametrize("below", REFUSED)
@pytest.mark.parametrize("which", ["--store", "--with"])
def test_a_page_among_the_files_of_a_store_is_refused(
    below: str, which: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stores = [tmp_path / "a", tmp_path / "b"]
    for one in stores:
        (one / "runs").mkdir(parents=True)
    chosen = stores[which == "--with"]
    out = chosen / below if below else tmp_path / "link"
    if not below:
        out.symlink_to(chosen)
    assert run(app, ["--store", str(stores[0]), "--with", str(stores[1]), "--out", str(out), "--no-measure"]) == 2
    told = f"error: --out 'OUT' {REFUSED[below]}: choose another folder, such as --out report\n"
    assert capsys.readouterr().err == told.replace("OUT", str(out))
    assert not any((chosen / "runs").iterdir())
    assert not (chosen / "index.html").exists()


def refuse() -> Figure:
    raise ValueError("no <map>\nand more")


def test_a_figure_that_fails_costs_one_line_and_not_the_page(tmp_path: Path) -> None:
    good = Picture("good", "a good one", lambda: Figure(figsize=(1, 1)))
    finding = Finding([Condition("x", {0: 1.0, 1: 2.0, 2: 3.0}, ">", 1)], pictures=[Picture("bad", "a bad one", refuse), good])
    claim = Claim("one", "One is <less> than two.", "1", "python", "rule", lambda results: finding)
    report = pages.Report.of([paper_of(claim)], Results([], table_of([])))
    assert report.errors == ["bad: ValueError: no <map>"]
    assert sorted(path.name for path in report.write(tmp_path)) == ["claims.json", "good.png", "good.svg", "index.html"]
    html = (tmp_path / "index.html").read_text()
    assert "The figure bad could not be drawn: ValueError: no &lt;map&gt;" in html
    assert "One is &lt;less&gt; than two." in html
    assert '<td class="n">2</td>' in html
    assert '<td class="n">1 to 3</td>' in html


@pytest.mark.slow(45)
def test_the_exit_code_tells_of_a_figure_that_failed(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finding = Finding([Condition("x", {0: 1.0}, ">", 0)], pictures=[Picture("bad", "a bad one", refuse)])
    claim = Claim("one", "One", "1", "python", "rule", lambda results: finding)
    monkeypatch.setattr("analysis.report.papers.PAPERS", (paper_of(claim),))
    assert run(app, ["--store", str(store), "--out", str(tmp_path), "--no-measure"]) == 1
    assert "bad: ValueError" in capsys.readouterr().err
    assert (tmp_path / "index.html").exists()


def test_numbers_of_a_world_that_reproduces_everything_are_on_the_page() -> None:
    claims = [claim for claim in CLAIMS if claim.id == "fail-in-box"]
    finding = claims[0].evaluate(Results([], world()))
    html = pages.Report([pages.Part(paper_of(claims[0]), [(claims[0], finding, [])])], 12, 3.25).html()
    assert "12 finished runs, 3.2 hours" in html
    assert "mlp, bump, center" in html
    assert "max_steps 3150" in html
    assert html.count(">met</td>") == 16
