"""What is said of the words of a command line: the option, the value, and what to write instead."""

import errno
import io
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import typer

from analysis import export
from orchestrator import (
    again,
    conditioning,
    encodings,
    jepa,
    launch,
    objectives,
    regularization,
    rotation,
    scaling,
    signal,
    tune,
    tuning,
)
from orchestrator.command import cli
from orchestrator.command.cli import run
from orchestrator.command.mistakes import with_options
from orchestrator.engine.cluster import Cluster
from orchestrator.store import StoreError
from tests.conftest import check_refusal
from trainables.generative.settings import GeneratorSettings
from trainables.settings import settings_of

TILDE, HOW = "the shell did not expand the ~", "with a space, without quotes\n"
NOBODY, IN_HOME = "there is no user 'nobody-here'", "for a place in your home, or give another name\n"
OF_WORDS: list[tuple[Any, str, str]] = [
    (scaling, "--N 16 --N 24", "--N is given twice, 16 and 24: give it once, for example --N 16,24"),
    (scaling, "--N=16 --seeds 1 --N 24", "--N is given twice, 16 and 24: give it once, for example --N 16,24"),
    (scaling, "--N 16 --N 24 --N 32", "--N is given 3 times, 16, 24 and 32: give it once, for example --N 16,24,32"),
    (scaling, "--seeds -1", "error: --seeds must be a whole number from 1 on, not '-1'\n"),
    (scaling, "--max-steps 1e3", "--max-steps must be a whole number from 1 to 2147483647, not '1e3': write 1000\n"),
    (scaling, "--max-steps 1.5", "--max-steps must be a whole number from 1 to 2147483647, not '1.5'\n"),
    (scaling, "--max-steps 0e1", "from 1 to 2147483647, not '0e1'\n"),
    (scaling, "--resolution 5%", "error: --resolution must be a number, not '5%': write 0.05\n"),
    (scaling, "--lr fast", "error: --lr must be a number, not 'fast'\n"),
    (scaling, "--lr 0.1,0.2", "error: --lr takes one number, not '0.1,0.2'\n"),
    (scaling, "--max-hours nan", "error: --max-hours must be a number from 0 on, not 'nan'\n"),
    (regularization, "--N 16,24", "--N takes one grid size here, not '16,24': start the study for each size by itself"),
    (encodings, "--N 16..64", "--N takes one grid size here, not '16..64': start the study for each size by itself"),
    (rotation, "--digit 3,4", "--digit takes one number, not '3,4'"),
    (scaling, "--N 16 24", "'24' belongs to no option: separate several values by commas, --N 16,24\n"),
    (scaling, "--N 16, 24 32", "'24' belongs to no option: separate several values by commas, --N 16,24,32\n"),
    (scaling, "--N 16..64 --N 8", "give it once, for example --N 16..64,8\n"),
    (scaling, "--N 2,4 --N 4", "--N is given twice, 2,4 and 4: give it once, for example --N 2,4\n"),
    (scaling, "--N 16 --N 16", "--N is given twice, 16 and 16: give it once, for example --N 16\n"),
    (scaling, "--N 16 .. 64", "'..' belongs to no option: write what --N takes without spaces, as --help shows\n"),
    (scaling, "--N 16 to 64", "'to' belongs to no option: write what --N takes without spaces, as --help shows\n"),
    (scaling, "--along width=32,64 --along depth=2,3", "given twice, width=32,64 and depth=2,3: give it once\n"),
    (scaling, "--along width=32,64 depth=2,3", "'depth=2,3' belongs to no option: write what --along takes without spaces"),
    (scaling, "--along data_count=32 --along data_count=64", "give it once, for example --along data_count=32,64\n"),
    (scaling, "--along width=32 64", "separate several values by commas, --along width=32,64\n"),
    (encodings, "--by-depth none --by-depth 2,6", "--by-depth is given twice, none and 2,6: give it once\n"),
    (encodings, "--decoders cnn mlp", "separate several values by commas, --decoders cnn,mlp\n"),
    (encodings, "--decoders cnn and mlp", "'and' belongs to no option: write what --decoders takes without spaces"),
    (objectives, "--split train1 fail1", "'fail1' belongs to no option: write what --split takes without spaces"),
    (tune, "--objective mse --objective accuracy", "mse and accuracy: give it once, for example --objective mse,accuracy\n"),
    (tune, "--objective mse accuracy", "separate several values by commas, --objective mse,accuracy\n"),
    (regularization, "--objectives id --objectives validation", "give it once, for example --objectives id,validation\n"),
    (scaling, "--store results –seeds 4", "'–seeds' begins with a dash that is no hyphen: write --seeds\n"),
    (scaling, "—seeds 4", "'—seeds' begins with a dash that is no hyphen: write --seeds\n"),
    (scaling, "--N 16 −−dry-run", "'−−dry-run' begins with a dash that is no hyphen: write --dry-run\n"),
    (scaling, "--N 8 —seeds=4", "'—seeds=4' begins with a dash that is no hyphen: write --seeds=4\n"),
    (tune, "--search lr=1e-4..1e-2 width=8..32", "before each value, --search lr=1e-4..1e-2 --search width=8..32\n"),
    (scaling, "--program ./{data_count} -N 8 --counts 4..32", "No such option: -N (perhaps --N)\n"),
    (signal, "--steps 100 200", "'200' belongs to no option, and --steps takes one number: omit it\n"),
    (scaling, "--encoding bump --encoding bump ramp", "takes one value: omit it, or quote a value with spaces, 'bump ramp'"),
    (
        scaling,
        "--program python -u x.py {data_count} --N 8 --counts 4..32",
        "--program takes one value: put the whole command in quotes, for example --program 'python -u x.py {data_count}'\n",
    ),
    (
        tune,
        "--N 8 --program=python x.py {lr} --search lr=1e-4..1e-2",
        "--program takes one value: put the whole command in quotes, for example --program 'python x.py {lr}'\n",
    ),
    (objectives, "--smoothing 0 0.1", "separate several values by commas, --smoothing 0,0.1\n"),
    (scaling, "--seeds 3 4", "'4' belongs to no option, and --seeds takes one number: omit it"),
    (scaling, "--store my results", "takes one value: omit it, or quote a value with spaces, 'my results'"),
    (scaling, "--store=~/results", f"--store '~/results': {TILDE}: write --store ~/results {HOW}"),
    (scaling, "--out=~/y", f"--out '~/y': {TILDE}: write --out ~/y {HOW}"),
    (again, "--into=~/y 123456", f"--into '~/y': {TILDE}: write --into ~/y {HOW}"),
    (export, "--csv=~/x", f"--csv '~/x': {TILDE}: write --csv ~/x {HOW}"),
    (export, "--tensorboard=~root/b", f"--tensorboard '~root/b': {TILDE}: write --tensorboard ~root/b {HOW}"),
    (scaling, "--store ~nobody-here", f"--store '~nobody-here': {NOBODY}: write --store ~/nobody-here {IN_HOME}"),
    (export, "--csv=~nobody-here/b", f"--csv '~nobody-here/b': {NOBODY}: write --csv ~/nobody-here/b {IN_HOME}"),
    (scaling, "stray", "'stray' belongs to no option: --help shows what there is"),
    (again, "123456 234567", "'234567' belongs to no option"),
    (again, "--store here 123456 --close 0.1 stray", "'stray' belongs to no option, and --close takes one number: omit it"),
    (regularization, "--ablation no", "--ablation takes no value: write --no-ablation\n"),
    (regularization, "--no-ablation=false", "--no-ablation takes no value: write --ablation\n"),
    (regularization, "--ablation yes", "--ablation takes no value, so 'yes' belongs to no option: write --ablation alone"),
    (scaling, "--dry-run no", "--dry-run takes no value, so 'no' belongs to no option: omit the option"),
    (scaling, "--N", "--N needs a value"),
    (scaling, "--N 8 --program ./{data_count} --counts 4..32 --program", "--program needs a value"),
    (scaling, "--N --seeds 3", "--N needs a value, and --seeds stands in its place"),
    (scaling, "--out=", "--out is empty: name a folder, such as tables, or omit the option\n"),
    (rotation, "--mnist=", "--mnist is empty: name a file or folder, or omit the option\n"),
    (scaling, "--precison float32", "No such option: --precison (perhaps --precision)\n"),
    (scaling, "--max_steps 9", "No such option: --max_steps (perhaps --max-steps)\n"),
    (scaling, "--max 9", "No such option: --max (perhaps --max-cost or --max-hours or --max-steps)\n"),
    (scaling, "-N 9", "No such option: -N (perhaps --N)\n"),
    (scaling, "--learning-rate 9", "No such option: --learning-rate\n"),
    (scaling, "--target-x 9", "No such option: --target-x (perhaps --target)\n"),
    (scaling, "--seed 9", "No such option: --seed (perhaps --seeds)\n"),
    (signal, "--families dit,maskgit", "No such option: --families: this command takes one, --family dit\n"),
    (signal, "--tokenizers=vq", "No such option: --tokenizers: this command takes one, --tokenizer vq\n"),
    (objectives, "--family dit", "No such option: --family: this command takes several, --families dit\n"),
    (tuning, "--decoders mlp", "No such option: --decoders: this command takes one, --decoder mlp\n"),
    (encodings, "--decoder", "No such option: --decoder: this command takes several, --decoders\n"),
    (regularization, "--confirm 50 --trials 4", "--confirm 50 is more than there are trials: give at most 4, or more --trials"),
    (
        regularization,
        "--confirm-seeds 0 --confirm 2",
        "--confirm 2 would change nothing, because --confirm-seeds 0 confirms no trial: omit --confirm, or give 1 or more ",
    ),
    (scaling, "--store s3://", "--store: the store must be a folder, s3://BUCKET/PATH or gs://BUCKET/PATH, not s3://\n"),
    (export, "--store ftp://a/b --csv x", "--store: the store must be a folder, s3://BUCKET/PATH or gs://BUCKET/PATH, not ftp"),
    (regularization, "--export-optuna=~/x.db", f"--export-optuna '~/x.db': {TILDE}: write --export-optuna ~/x.db {HOW}"),
    (tune, "--search lr=1..2 --export-optuna=~/a/x", f"--export-optuna '~/a/x': {TILDE}: write --export-optuna ~/a/x {HOW}"),
]
OF_SETTINGS: list[tuple[Any, str, str]] = [
    (scaling, "--target 90", "error: --target must lie in (0, 1], not 90.0\n"),
    (scaling, "--lr 0", "error: --lr must be above 0"),
    (scaling, "--sigma 99 --N 16", "error: --sigma must be above 0"),
    (scaling, "--option sigma=wide", "error: --option 'sigma=wide': the option sigma takes a finite number, not 'wide'"),
    (regularization, "--init x", "error: --init must be one of published, positive, not 'x'"),
    (scaling, "--encoding ramp", "because zero is a position: use --absent minus-one\n"),
    (scaling, "--along encoding=bump,ramp --N 16", "because zero is a position: use --absent minus-one\n"),
    (jepa, "--jepa-layers 0", "error: --jepa-layers must be three or one"),
    (jepa, "--jepa 0 --jepa-layers one --jepa-teacher same --option smoothing=0", "error: --option smoothing has an option"),
    (conditioning, "--dropout-mode x", "error: --dropout-mode 'x' is unknown"),
    (objectives, "--network x", "error: --network 'x' is unknown: choose linear or conv"),
    (objectives, "--codes x", "error: --codes takes a whole number, not 'x'"),
    (objectives, "--option conditioning=x", "error: conditioning 'x' is unknown"),
    (
        objectives,
        "--radius-small 0.6 --radius-large 0.5",
        "error: --radius-small + 2 --radius-jitter must be under --radius-large",
    ),
    (signal, "--between 1..0.1", "error: --between '1..0.1' is empty: write the smaller number first, --between 0.1..1\n"),
    (signal, "--between 0..1", "error: --between 0..1: contrast must be at least 0.01"),
    (scaling, "--along width=0,32 --N 24", "error: --along width=0,32: width must be at least 1, not 0"),
    (scaling, "--least width --between 0..4 --data-count 9", "error: --between 0..4: width must be at least 1, not 0"),
    (tune, "--search=", "error: --search is empty: write NAME=LOW..HIGH"),
    (tune, "--search lr=1e-4-1e-2", "error: --search 'lr=1e-4-1e-2' has no range: write lr=1e-4..1e-2\n"),
    (tune, "--search lr=1e-4..1e-2 --objective acuracy", "--objective 'acuracy' is unknown: perhaps accuracy is meant"),
]


@pytest.mark.parametrize(
    ("study", "words", "told"), [*OF_WORDS, *OF_SETTINGS], ids=lambda value: str(getattr(value, "__name__", value))[:50]
)
def test_a_mistake_names_the_option_and_what_to_write(
    study: Any, words: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "_launch", lambda *_: 0)  # a mistake that is overlooked starts no study
    monkeypatch.setattr(Cluster, "check", lambda _: None)
    check_refusal(study.app, words.split(), told, tmp_path, capsys)


@pytest.mark.parametrize("words", ["--N 16 --N 24 --help", "--help stray", "--frobnicate --help"])
def test_help_is_shown_all_the_same_unless_a_mistake_comes_before_it(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(scaling.app, words.split()) == (2 if "frob" in words else 0)
    assert ("Usage" in capsys.readouterr().out) == ("frob" not in words)


def test_options_that_may_be_repeated_still_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--option", "sigma=1", "--option", "tolerance=1", "--N", "8", "--decoder", "mlp", "--seeds", "1", "--dry-run"]
    assert run(scaling.app, words) == 0
    assert "runs to do" in capsys.readouterr().out


def test_a_folder_that_is_called_by_a_tilde_is_used_if_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["--N", "8", "--decoder", "mlp", "--seeds", "1", "--dry-run", "--store=~/results"]
    assert run(scaling.app, words) == 2
    (tmp_path / "~" / "results").mkdir(parents=True)
    assert run(scaling.app, words) == 0
    assert "rows go to ~/results/runs" in capsys.readouterr().out


def test_a_range_that_is_one_number_is_said_to_be_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "_launch", lambda *_: 0)
    told = {
        "--N 16..22": "--N 16..22 is 16 alone, as it goes in steps of 8: write 16..22:2 for more",
        "--N 8,16..64:100": "--N 16..64:100 is 16 alone, as it goes in steps of 100: write 16..64:16 for more",
        "--along N=16..17": "--along N=16..17 is 16 alone, as it goes in steps of 8: write 16..17:1 for more",
        "--N 24 --along depth=2..3:4": "--along depth=2..3:4 is 2 alone, as it goes in steps of 4: write 2..3:1 for more",
    }
    for words, warning in told.items():
        assert run(scaling.app, ["--decoder", "mlp", "--seeds", "1", *words.split()]) == 0
        assert capsys.readouterr().err == f"warning: {warning}\n"
    assert run(scaling.app, ["--decoder", "mlp", "--seeds", "1", "--N", "16..30,16..16,9"]) == 0
    assert run(tuning.app, ["--bumps", "0..50"]) == 0
    assert capsys.readouterr().err == ""
    assert run(tuning.app, ["--bumps", "0..5"]) == 0
    assert capsys.readouterr().err == "warning: --bumps 0..5 is 0 alone, as it goes in steps of 10: write 0..5:1 for more\n"
    assert run(encodings.app, ["--by-depth", "2..3:2"]) == 0
    assert capsys.readouterr().err == "warning: --by-depth 2..3:2 is 2 alone, as it goes in steps of 2: write 2..3:1 for more\n"


def test_an_option_may_take_two_values() -> None:
    app = cli.App()

    @app.command()
    def command(pair: tuple[str, str] = ("", "")) -> int:
        return 0 if pair == ("a", "b") else 1

    assert run(app, ["--pair", "a", "b"]) == 0
    assert run(app, ["--pair", "a"]) == 2


def test_only_settings_that_have_options_are_called_by_them() -> None:
    named = {"sigma": "--sigma", "absent": "--absent", "jepa_layers": "--jepa-layers", "jepa": "--jepa", "width": "--channels"}
    assert with_options("width must be 2", named) == "--channels must be 2"
    assert with_options("jepa_layers and head_width mean nothing", named) == "--jepa-layers and head_width mean nothing"
    assert with_options("jepa_layers = 3 is too many", named) == "--jepa-layers 3 is too many"
    assert with_options("no: use the option absent=minus-one", named) == "no: use --absent minus-one"
    assert with_options("no: use the option present=yes", named) == "no: use the option present=yes"
    assert with_options("jepa is a loss, of width 2", named) == "jepa is a loss, of width 2"
    assert with_options("a/jepa_layers.txt cannot be read", named) == "a/jepa_layers.txt cannot be read"


def test_what_a_generator_may_be_given_is_in_the_help_of_its_options() -> None:
    known = settings_of(GeneratorSettings)
    helps = {each.name: each.help for each in typer.main.get_command(jepa.app).params if each.param_type_name == "option"}
    assert helps["smoothing"] == "Label smoothing of maskgit. Comma-separated: 0 to 0.5."
    assert helps["network"].endswith("Comma-separated: `linear`, `conv`.")
    for name in ("smoothing", "codes", "radius_large", "jepa", "temperature", "colour_separation"):
        assert f"{known[name].low:g} to {known[name].high:g}." in helps[name]


def test_help_has_the_true_defaults(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")

    def shown(app: Any, option: str) -> str:
        assert run(app, ["--help"]) == 0
        text = re.sub(r"[│╭╮╰╯─]", "", capsys.readouterr().out)
        return re.sub(r"\s+", " ", text[text.index(f" {option}   ") :])[:220]

    assert "[default: (INTO/again)]" in shown(again.app, "--out")
    assert "[default: (1)]" in shown(again.app, "--workers")
    assert "[default: (0,0.6)]" in shown(jepa.app, "--jepa")


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
LEFT = BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
TOO_LARGE = OSError(errno.EFBIG, os.strerror(errno.EFBIG))
STALE = OSError(errno.ESTALE, os.strerror(errno.ESTALE))
UNASKED = io.UnsupportedOperation("not writable")


def failing_app(fails: Any) -> cli.App:
    app = cli.App()

    @app.command()
    def command() -> int:
        fails()
        return 0

    return app


@pytest.mark.parametrize(
    ("word", "told"),
    [
        (b"results-\xff", r"b'results-\xff' is not UTF-8, so no row or table can hold it: use another name"),
        ("ünï".encode(), "'ünï' cannot be read, because the locale of this shell is not UTF-8: set LC_ALL=C.UTF-8"),
    ],
)
def test_a_word_that_is_no_text_is_refused_and_what_makes_it_so_is_named(
    word: bytes, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(scaling.app, ["--store", word.decode("ascii", "surrogateescape"), "--dry-run"]) == 2
    assert capsys.readouterr().err == f"error: {told}\n"


@pytest.mark.parametrize(("columns", "kept"), [("0", None), ("39", None), ("40", "40"), ("many", "many")])
def test_a_width_in_which_nothing_can_be_read_is_passed_over(
    columns: str, kept: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert run(scaling.app, ["--help"]) == 0
    assert os.environ.get("COLUMNS") == kept
    assert "--store" in capsys.readouterr().out


def test_a_full_disk_under_a_task_is_not_said_to_be_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        raise FULL

    before = sys.stdout, sys.stderr
    with pytest.raises(OSError, match="No space left") as caught:
        run(failing_app(fails), [])
    assert not isinstance(caught.value, cli.UnheardError)
    assert capsys.readouterr().err == ""
    assert (sys.stdout, sys.stderr) == before


@pytest.mark.parametrize("why", [FULL, LEFT, TOO_LARGE, STALE, UNASKED])
@pytest.mark.parametrize("how", ["write", "flush"])
def test_an_output_that_cannot_be_written_is_told_as_such(how: str, why: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        encoding = "utf-8"

        def write(self, text: str) -> int:
            if how == "write":
                raise why
            return len(text)

        def flush(self) -> None:
            raise why

    told: list[cli.UnheardError] = []
    monkeypatch.setattr(sys, "stdout", Full())
    monkeypatch.setattr(cli, "_unheard", lambda error: told.append(error) or cli.Exit.NOT_ANSWERED)
    assert run(failing_app(lambda: print("answer")), []) == 1
    assert [(str(error), error.is_left) for error in told] == [(why.strerror or str(why), why is LEFT)]


def test_a_reader_that_leaves_a_command_in_a_command_is_known_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    class Left(io.StringIO):
        def write(self, text: str) -> int:
            raise LEFT

    told: list[cli.UnheardError] = []
    monkeypatch.setattr(sys, "stdout", Left())
    monkeypatch.setattr(cli, "_unheard", lambda error: told.append(error) or cli.Exit.NOT_ANSWERED)
    inner = failing_app(lambda: print("answer"))
    assert run(failing_app(lambda: run(inner, [])), []) == 0
    assert [(str(error), error.is_left) for error in told] == [(LEFT.strerror, True)]


def test_a_code_stays_if_what_was_printed_cannot_be_written_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise FULL

    app = cli.App()

    @app.command()
    def command() -> int:
        return 129

    monkeypatch.setattr(sys, "stdout", Full())
    monkeypatch.setattr(cli, "_unheard", lambda error: cli.Exit.NOT_ANSWERED)
    assert run(app, []) == 129


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_of_temporary_files_is_told_as_such(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/full")
    told = "the disk of temporary files is full ({}): make room there, or set TMPDIR to a folder elsewhere"
    assert str(launch._disk_named(OSError(number, "no space"))) == told.format("/full")
    assert str(launch._disk_named(OSError(number, "no space", "/other/file"))) == told.format("/other/file")
    for other in (OSError(errno.EACCES, "no"), StoreError("the store's disk is full")):
        assert launch._disk_named(other) is other
