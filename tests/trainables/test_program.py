"""Programs as runs: what they tell, how they end, how they are ended, and that nothing of them is left."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from trainables import guard, program, program_run
from trainables.check import counts_of
from trainables.process import KEPT, LONGEST_LINE, _Lines
from trainables.program import FILES, ProgramTask, changed_files, digest, fill, names_in, words_of
from trainables.program_run import MOST_POINTS, PrintedError, ProgramRun, Told
from trainables.spec import Counts, RunSpec, run_key
from trainables.task import Task
from trainables.training.memory import is_out_of_memory
from trainables.training.run import RunError, UnfitError

PATIENCE = 60.0
ROOT = Path(__file__).parents[2]


def spec_of(command: str, files: dict[str, str] | None = None, **fields: Any) -> RunSpec:
    options = {"program": command, "files": json.dumps(files or {}), "counts": "1..90", **fields.pop("options", {})}
    usual: dict[str, Any] = {"N": 4, "data_count": 7, "seed": 3, "decoder": "", "depth": 0, "width": 1, "encoding": ""}
    usual |= {"holdout": "", "stop": "target", "options": tuple(options.items())}
    return RunSpec(task="trainables.program:ProgramTask", dataset="toy", **{**usual, **fields})


def shell(script: str) -> str:
    """The command of a script for sh, whose braces are braces."""
    return shlex.join(["sh", "-c", script.replace("{", "{{").replace("}", "}}")])


@pytest.fixture
def begin() -> Iterator[Callable[..., ProgramRun]]:
    """Makes a run of a script, which is closed in the end."""
    made: list[ProgramRun] = []

    def make(script: str, stall_seconds: float = math.inf, **fields: Any) -> ProgramRun:
        made.append(ProgramRun(spec_of(shell(script), **fields), stall_seconds=stall_seconds))
        return made[-1]

    yield make
    for run in made:
        run.close()


Begin = Callable[..., ProgramRun]


def ended(run: ProgramRun) -> dict[str, Any]:
    """Its result, as a dict."""
    assert run.advance(PATIENCE), "the program is still running"
    result = run.result()
    return {name: getattr(result, name) for name in result.__dataclass_fields__}


def error_of(run: ProgramRun) -> str:
    with pytest.raises(RunError) as caught:
        run.advance(PATIENCE)
    return str(caught.value)


def wait_for(holds: Callable[[], Any]) -> Any:
    """What it gives, as soon as that is true."""
    end = time.monotonic() + PATIENCE
    while not (found := holds()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # perhaps only now
        return False


def test_a_program_that_reaches_the_target_passes_and_is_ended(begin: Begin, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    run = begin(
        f"echo $$ > {pid}; echo reading; printf '%s\\n' "
        """'{"step": 10, "accuracy": 0.5, "loss": 0.7, "mse": 0.2, "margin": 2}' """
        """'{"step": 20, "accuracy": 0.95, "loss": 0.1, "margin": 3, "name": "x", "flag": true}' """
        """'{"step": 30, "accuracy": 0.99}'; sleep 1000"""
    )
    result = ended(run)
    assert (result["status"], result["reason"], result["steps"], result["passage_step"]) == ("passed", "target", 20, 20)
    assert (result["accuracy"], result["loss"], result["ood_mse"], result["id_mse"]) == (0.95, 0.1, 0.2, None)
    assert result["measures"] == {"margin": 3.0}
    assert (result["curve_step"], result["curve_accuracy"], result["curve_loss"]) == ([10, 20], [0.5, 0.95], [0.7, 0.1])
    assert result["curve_error"][0] == 0.2
    assert math.isnan(result["curve_error"][1])
    assert not is_alive(int(pid.read_text()))
    assert run.state_dict() is None


def test_under_a_budget_it_is_not_ended(begin: Begin) -> None:
    result = ended(begin("""echo '{"step": 1, "accuracy": 1}'; echo '{"step": 2, "accuracy": 0.25}'""", stop="budget"))
    assert (result["status"], result["reason"], result["passage_step"], result["accuracy"]) == ("passed", "ended", 1, 0.25)


@pytest.mark.parametrize("printed", ['{"split": "test", "accuracy": 0.25}', "0.25"])
def test_it_is_known_which_line_told_the_accuracy(begin: Begin, printed: str) -> None:
    run = begin(f"""echo '{{"loss": 3}}'; echo ' {printed} '""")
    ended(run)
    assert run.line == printed


@pytest.mark.parametrize(
    ("printed", "accuracy"),
    [
        ("""loading; echo '{"step": 5, "accuracy": 0.5}'; echo done; echo 1.0""", 0.5),
        ("""one; echo; echo '{"accuracy": 0.75}'""", 0.75),
        ("""0.1; echo 0.25; echo; echo""", 0.25),
        ("""'[1]'; echo '{"accuracy": tru'; echo '{"a": {"b": 1}}'; printf 0.5""", 0.5),
        (r"""accuracy; printf '\t0.5\t\n'""", 0.5),
        (r"""accuracy; echo 0.5; printf '\302\240\n'""", 0.5),
        (r"""accuracy; printf '\302\2400.5'; printf '%0600d\n' 0""", 0.5),  # a space that does not break, and many digits
    ],
)
def test_a_program_that_ends_below_the_target_misses(begin: Begin, printed: str, accuracy: float) -> None:
    result = ended(begin(f"echo {printed}"))
    assert (result["status"], result["reason"], result["accuracy"]) == ("missed", "ended", accuracy)


def test_an_accuracy_that_rounding_has_put_above_one_is_one(begin: Begin) -> None:
    result = ended(begin("""echo '{"step": 1, "accuracy": 1.0000001}'; sleep 1000"""))
    assert (result["status"], result["accuracy"], result["curve_accuracy"]) == ("passed", 1.0, [1.0])
    assert "told an accuracy of 1.00001, in the line" in error_of(begin("echo 1.00001"))
    assert "told an accuracy of 1.0000011, in the line" in error_of(begin("echo 1.0000011"))


def test_an_accuracy_that_rounding_has_put_below_zero_is_zero(begin: Begin) -> None:
    result = ended(begin("""echo '{"step": 1, "accuracy": -2.2e-16}'"""))
    assert (result["status"], str(result["accuracy"]), result["curve_accuracy"]) == ("missed", "0.0", [0.0])
    assert str(ended(begin("echo -1e-6"))["accuracy"]) == "0.0"
    assert "told an accuracy of -1.1e-06, in the line" in error_of(begin("echo -0.0000011"))


@pytest.mark.parametrize("printed", ['{"accuracy": 0.25}', "0.25"])
def test_a_byte_order_mark_before_the_first_line_hides_nothing(begin: Begin, printed: str) -> None:
    run = begin(f"printf '\\357\\273\\277%s\\n' '{printed}'")
    assert ended(run)["accuracy"] == 0.25
    assert run.line == printed


def test_a_byte_order_mark_is_left_out_however_the_first_bytes_come_and_only_there() -> None:
    for chunks in ([b"\xef", b"\xbb", b'\xbf{"a": 1}\n\xef\xbb\xbf0.5\n'], [b'\xef\xbb\xbf{"a": 1}\n\xef\xbb\xbf0.5']):
        heard: list[bytes] = []
        lines = _Lines(heard.append)
        for chunk in chunks:
            lines.take(chunk)
        lines.finish()
        assert (heard, lines.last) == ([b'{"a": 1}'], ['{"a": 1}', r"\ufeff0.5"])


@pytest.mark.parametrize("printed", ["nan", """'{"accuracy": NaN}'""", """'{"accuracy": 0.5, "loss": Infinity}'; sleep 1000"""])
def test_what_is_not_finite_diverges(begin: Begin, printed: str) -> None:
    result = ended(begin(f"echo {printed}"))
    assert (result["status"], result["reason"], result["passage_step"]) == ("diverged", "diverged", None)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo here >&2; echo 0.9; exit 3", "the program ended with exit code 3\nstderr:\nhere\nstdout:\n0.9"),
        ("echo here >&2; kill -SEGV $$", "the program ended by SIGSEGV\nstderr:\nhere"),
        ("printf '\\033[31m[/red]\\377\\n' >&2; exit 1", "exit code 1\nstderr:\n\\x1b[31m[/red]\ufffd"),
    ],
)
def test_a_program_that_fails_tells_how(begin: Begin, script: str, told: str) -> None:
    assert told in error_of(begin(script))


@pytest.mark.parametrize(
    ("end", "counted", "told"),
    [
        ("kill -9 $$", 5, "the program ran out of memory: the system has ended it, or another process (by SIGKILL)"),
        ("sh -c 'kill -9 $$'; exit $?", 5, "the program ran out of memory: the system has ended it, or another process (with"),
        ("kill -9 $$", 4, "the program ended by SIGKILL\n"),
        ("exit 1", 5, "the program ended with exit code 1\n"),
    ],
)
def test_the_system_tells_that_it_has_ended_something_for_want_of_memory(
    begin: Begin, end: str, counted: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = tmp_path / "memory.events"
    counter.write_text("oom 4\noom_kill 4\n")
    monkeypatch.setattr(program_run, "oom_counter", lambda: counter)
    error = error_of(begin(f"echo here >&2; echo 'oom_kill {counted}' > {counter}; {end}"))
    assert f"{error}\n".startswith(told)
    assert is_out_of_memory(RunError(error)) == told.startswith("the program ran out")
    assert "stderr:\nhere" in error


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo '{}'; echo 'accuracy: 99.61%'", "the program told no accuracy: its last line is 'accuracy: 99.61%'. "),
        ("echo here >&2", "the program told no accuracy: it printed nothing. "),
        (
            """echo '{"accuracy": "0.51"}'; echo done""",
            """the program told no accuracy: what stands for it in '{"accuracy": "0.51"}' is no number. """,
        ),
        ("""echo '{"accuracy": 93}'; sleep 9""", """93, in the line '{"accuracy": 93}': it must be a share, from 0 to 1\n"""),
        (
            """echo '{"accuracy": 0.5}'; echo '{"accuracy": "0.51"}'; echo 0.7""",
            """the program told no accuracy in the end: what stands for it in '{"accuracy": "0.51"}' is no number. """,
        ),
        ("""echo '{"accuracy": null}'; echo""", """no accuracy: what stands for it in '{"accuracy": null}' is no number. """),
        ("echo 93.5", "the program told an accuracy of 93.5, in the line '93.5': it must be a share, from 0 to 1\n"),
    ],
)
def test_a_program_that_prints_no_share_has_made_a_mistake_that_no_other_try_mends(
    begin: Begin, script: str, told: str
) -> None:
    run = begin(script)
    with pytest.raises(PrintedError) as caught:
        run.advance(PATIENCE)
    assert told in str(caught.value)
    if "no accuracy" in told:
        (first, *_) = str(caught.value).splitlines()
        assert first.endswith('. Let it print a line such as {"accuracy": 0.93}, or a share from 0 to 1 alone in its last line')


@pytest.mark.parametrize("wrong", ["0.95", [0.95], {"mean": 0.95}, True, pytest.param(10**400, id="huge")])
def test_an_accuracy_that_is_no_number_decides_only_if_it_is_the_last(wrong: Any) -> None:
    assert told({"accuracy": 0.5}, {"accuracy": wrong}).no_number == json.dumps({"accuracy": wrong})
    assert told({"accuracy": 0.5}, {"accuracy": wrong}, {"loss": 1}, {"accuracy": None}).no_number
    found = told({"accuracy": 0.5}, {"accuracy": wrong}, {"accuracy": 0.25})
    assert (found.accuracy, found.no_number) == (0.25, "")


@pytest.mark.parametrize("lines", [("null", "0.25"), ("0.25", "null"), ("0.5", "null", "0.25", "null")])
def test_an_accuracy_of_null_is_none(begin: Begin, lines: tuple[str, ...]) -> None:
    result = ended(begin("; ".join(f"""echo '{{"accuracy": {text}}}'""" for text in lines)))
    assert (result["status"], result["accuracy"]) == ("missed", 0.25)


LONG = "head -c 70000 /dev/zero | tr '\\0' 7"


@pytest.mark.parametrize("before", ["", """echo '{"step": 1, "accuracy": 0.5}'; """])
@pytest.mark.parametrize("after", ["", """; echo '{"step": 3, "accuracy": 0.7}'; sleep 1000"""])
def test_json_in_a_line_that_is_too_long_to_be_read_is_not_passed_over(begin: Begin, before: str, after: str) -> None:
    run = begin(f"""{before}printf '  {{"step": 2, "accuracy": 0.9, "seen": ['; {LONG}; printf ']}}\\n'{after}""", target=0.8)
    with pytest.raises(PrintedError) as caught:
        run.advance(PATIENCE)
    (first, *_) = str(caught.value).splitlines()
    assert first == (
        "the program printed JSON in a line of more than 64 KiB, which begins with "
        """'{"step": 2, "accuracy": 0.9, "seen": [77'. It was not read, so an accuracy in it is lost: """
        "print what is long to a file"
    )


@pytest.mark.parametrize("beginning", ["x", "{x", "{\\047x\\047: ", "x {\\042x\\042: "])
def test_a_long_line_that_is_no_json_is_passed_over(begin: Begin, beginning: str) -> None:
    run = begin(f"""echo '{{"accuracy": 0.5}}'; printf '{beginning}'; {LONG}; printf '}}\\n'""")
    assert ended(run)["accuracy"] == 0.5


def test_a_line_of_64_kib_is_read_and_one_byte_more_is_too_long(begin: Begin, tmp_path: Path) -> None:
    for ending in ("\n", "\r\n", ""):
        for mark in ("", "\ufeff"):
            for size in (LONGEST_LINE, LONGEST_LINE + 1):
                line = '{"accuracy": 0.25, "seen": "'.ljust(size - 2, "7") + '"}'
                (tmp_path / "lines").write_bytes((mark + line + ending).encode())
                run = begin(f"cat {tmp_path}/lines")
                if size == LONGEST_LINE:
                    assert ended(run)["accuracy"] == 0.25
                else:
                    assert "printed JSON in a line of more than 64 KiB" in error_of(run)


def test_a_program_that_is_not_there_fails(tmp_path: Path) -> None:
    assert "the program 'no-such-program' did not run: No such file" in error_of(ProgramRun(spec_of("no-such-program")))
    (tmp_path / "text").write_text("neither a script nor a program")
    (tmp_path / "text").chmod(0o755)
    assert "did not run: Exec format error" in error_of(ProgramRun(spec_of(str(tmp_path / "text"))))


def test_megabytes_of_output_are_read_and_not_kept(begin: Begin) -> None:
    noise = "yes 'a line of some forty characters or so' | head -c 20000000"
    long = "head -c 1000000 /dev/zero | tr '\\0' x; echo"
    run = begin(f"""{noise}; {noise} >&2; {long}; printf '\\377\\376\\n'; echo '{{"accuracy": 0.5}}'; ({long}) >&2; exit 4""")
    lines = error_of(run).splitlines()
    assert lines[0] == "the program ended with exit code 4"
    assert len(lines) <= 1 + 2 * 21
    assert max(map(len, lines)) == 500
    assert lines[-2:] == ["\ufffd\ufffd", '{"accuracy": 0.5}']


def test_a_silent_program_is_killed_and_has_failed(begin: Begin, tmp_path: Path) -> None:
    run = begin(f"echo $$ > {tmp_path}/pid; sleep 1000", stall_seconds=0.5)
    assert "printed nothing for" in (told := error_of(run))
    assert "(--stall-minutes), so it was killed" in told
    pid = int((tmp_path / "pid").read_text() or 0) if (tmp_path / "pid").exists() else 0
    assert not pid or not is_alive(pid)


def test_silence_is_counted_over_slices(begin: Begin) -> None:
    run = begin("sleep 1000", stall_seconds=0.5)
    began = time.monotonic()
    with pytest.raises(RunError, match="the program printed nothing"):
        any(run.advance(0.05) for _ in range(1000))
    assert time.monotonic() - began >= 0.5


@pytest.mark.parametrize("frozen", ["in a slice", "between slices"])
def test_time_in_which_the_machine_stood_still_is_no_silence(
    begin: Begin, frozen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begin(f"while ! test -e {tmp_path}/go; do sleep 0.05; done; echo 0.5", stall_seconds=20)
    assert not run.advance(0.0)
    passed, wait = 0.0, run._changed.wait

    def wait_frozen(timeout: float | None) -> bool:
        nonlocal passed
        passed += 100 if frozen == "in a slice" else 0
        return wait(timeout)

    monkeypatch.setattr(run._changed, "wait", wait_frozen)
    monkeypatch.setattr(program_run, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed))
    for _ in range(3):
        passed += 100 if frozen == "between slices" else 0
        assert not run.advance(0.0)
    (tmp_path / "go").touch()
    monkeypatch.setattr(run._changed, "wait", wait)
    assert ended(run)["status"] == "missed"


def test_a_program_that_prints_is_not_silent_and_a_slice_ends_meanwhile(begin: Begin, tmp_path: Path) -> None:
    run = begin(f"while ! test -e {tmp_path}/go; do echo . >&2; sleep 0.05; done; echo 0.5", stall_seconds=20)
    assert not run.advance(0.1)
    assert (run.reason, run.progress.step) == ("", 0)
    assert math.isnan(run.progress.accuracy)
    assert run._process is not None
    process, before = run._process, run._process.last_sign
    wait_for(lambda: process.last_sign > before)
    (tmp_path / "go").touch()
    assert ended(run)["accuracy"] == 0.5


def test_a_program_that_ignores_sigterm_is_killed(begin: Begin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    impatient = tmp_path / "guard.py"
    impatient.write_text(Path(guard.__file__).read_text().replace("GRACE_SECONDS = 5.0", "GRACE_SECONDS = 0.1"))
    monkeypatch.setattr("trainables.process.GUARD", str(impatient))
    run = begin(f"""trap '' TERM; echo $$ > {tmp_path}/pid; echo '{{"accuracy": 1}}'; while :; do sleep 0.05; done""")
    assert ended(run)["status"] == "passed"
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_a_guard_does_without_waitid(begin: Begin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Python has none on macOS before 3.13."""
    without = tmp_path / "guard.py"
    without.write_text(Path(guard.__file__).read_text().replace("import time\n", "import time\n\ndel os.waitid\n", 1))
    monkeypatch.setattr("trainables.process.GUARD", str(without))
    assert ended(begin("echo 0.25"))["accuracy"] == 0.25
    assert error_of(begin("echo 0.5; exit 4")).splitlines()[0] == "the program ended with exit code 4"
    assert error_of(begin("kill -9 $$")).splitlines()[0] == "the program ended by SIGKILL"
    run = begin(f"export HERE={tmp_path}; sleep 1000 & sleep 0.1; echo 0.5")
    assert ended(run)["accuracy"] == 0.5
    assert not [p.pid for p in psutil.process_iter() if environment(p) == str(tmp_path)]
    assert "printed nothing for" in error_of(begin("sleep 1000", stall_seconds=0.5))


@pytest.mark.parametrize("how", ["sleep 1000 &", "setsid sleep 1000 &", "setsid sh -c 'sleep 1000 & sleep 1000' &"])
def test_what_a_program_leaves_behind_is_killed(begin: Begin, how: str, tmp_path: Path) -> None:
    mark = f"HERE={tmp_path}"
    run = begin(f"export {mark}; {how} sleep 0.1; echo 0.5")
    assert ended(run)["accuracy"] == 0.5
    assert not [p.pid for p in psutil.process_iter() if environment(p) == str(tmp_path)]


UNKILLABLE = """
import os, sys
from trainables import guard
def denied(*_):
    raise PermissionError(1, "Operation not permitted")
os.kill = os.killpg = denied
guard.GRACE_SECONDS = 0.2
sys.argv = ["guard.py", sys.argv[1], "sh", "-c", "(setsid sleep 0.4 &); (setsid sleep 20 & echo $! > $0); exit 4", sys.argv[2]]
guard.main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only there it knows its children")
def test_what_may_not_be_killed_is_left_and_the_end_is_told(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    words = [sys.executable, "-c", UNKILLABLE, str(writing), str(tmp_path / "pid")]
    begun = subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=(writing,), cwd=ROOT)
    os.close(writing)
    try:
        with os.fdopen(reading) as told:
            first, last = told.read().splitlines()
        assert (first.split()[0], last) == ("pid", "exit 4")
        assert is_alive(int((tmp_path / "pid").read_text()))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        begun.communicate(timeout=PATIENCE)


def environment(process: psutil.Process) -> str:
    try:
        return process.environ().get("HERE", "")
    except psutil.Error:
        return ""


WORKER = """
import os, sys, threading, time
sys.path.insert(0, {root!r})
from trainables.process import Process
process = Process(["sh", "-c", {script!r}], os.environ, print, threading.Event())
time.sleep(1000)
"""


@pytest.mark.parametrize("also", [False, True], ids=["the worker", "the worker and its children"])
def test_a_killed_worker_takes_its_program_along(also: bool, tmp_path: Path) -> None:
    script = f"setsid sleep 1000 & echo $$ $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pids; wait"
    worker = subprocess.Popen([sys.executable, "-c", WORKER.format(root=str(ROOT), script=script)])
    try:
        wait_for((tmp_path / "pids").exists)
        pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
        assert all(map(is_alive, pids))
        children = psutil.Process(worker.pid).children()
    finally:
        worker.kill()
        worker.wait()
    for child in children if also else ():  # as Ray does when a worker ends
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended by itself
            child.kill()
    wait_for(lambda: not any(map(is_alive, pids)))


def test_a_program_without_its_guard_is_killed(begin: Begin, tmp_path: Path) -> None:
    run = begin(f"sleep 1; echo $$ > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pid; sleep 1000")
    assert not run.advance(0)
    wait_for((tmp_path / "pid").exists)  # a second later, so that the guard has told whom it guards
    pid = int((tmp_path / "pid").read_text())
    os.kill(psutil.Process(pid).ppid(), signal.SIGKILL)
    assert "the program 'sh' was ended: its guard was killed" in error_of(run)
    wait_for(lambda: not is_alive(pid))


def test_it_is_started_where_the_run_is_with_one_thread_and_without_what_is_rays(
    begin: Begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    monkeypatch.setenv("MINE", "yes")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    script = "pwd > where; env > env; cat > input; echo 0.5"
    ended(begin(script))
    variables = (tmp_path / "env").read_text().splitlines()
    assert (tmp_path / "where").read_text().strip() == str(tmp_path)
    assert (tmp_path / "input").read_text() == ""
    assert {"MINE=yes", "OMP_NUM_THREADS=1", "PYTHONUNBUFFERED=1"} <= set(variables)
    assert not [line for line in variables if line.startswith("RAY_")]
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    ended(begin(script))
    assert "OMP_NUM_THREADS=2" in (tmp_path / "env").read_text().splitlines()


def test_changed_files_are_another_program(begin: Begin, tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_text("echo 0.5")
    files = {str(file): digest(str(file))}
    assert ended(begin(f"sh {file}", files=files))["accuracy"] == 0.5
    file.write_text("echo 0.6")
    with pytest.raises(UnfitError) as caught:
        begin("x", files=files).advance(PATIENCE)
    told = str(caught.value)
    assert told.startswith(f"{file} cannot be read here, or is not the file that the study began with, so this machine cannot ")
    assert "put the file back, the same on all machines, and the same command continues. " in told
    assert told.endswith('--program-settings FILE.toml, as [program] files = ["train.py"]')
    assert digest(str(file)) != files[str(file)]


def test_a_file_is_read_again_only_if_it_may_have_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    open_ = program._opened

    def noted(path: str, flags: int) -> int:
        opened.append(path)
        return open_(path, flags)

    monkeypatch.setattr(program, "_opened", noted)
    file, other = tmp_path / "data", tmp_path / "other"

    def times_read(path: Path) -> int:
        opened.clear()
        assert digest(str(path)) == digest(str(path)) == hashlib.sha256(path.read_bytes()).hexdigest()[:24]
        return len(opened)

    file.write_text("one")
    assert times_read(file) == 2, "it may change again within the same step of the clock"
    os.utime(file, ns=(0, 10**18))
    assert times_read(file) == 1
    assert times_read(file) == 0
    file.write_text("two")
    os.utime(file, ns=(0, 10**18 + 1))
    assert times_read(file) == 1
    other.write_text("six")
    os.utime(other, ns=(0, 10**18 + 1))
    other.replace(file)
    assert times_read(file) == 1
    file.write_text("seven")
    os.utime(file, ns=(0, 10**18 + 1))
    assert times_read(file) == 1


@pytest.mark.parametrize("files", [None, "", "[]", "5", "[" * 3000, '{"a": 5}', '{"a\\u0000": "b"}', '{"\\ud800": "b"}'])
def test_files_that_no_study_writes_are_refused_in_words(files: str | None) -> None:
    options: dict[str, Any] = {} if files is None else {FILES: files}
    spec = dataclasses.replace(spec_of("x"), options=tuple(options.items()))
    with pytest.raises(ValueError, match="say of no program which files it has: the row is not one of this project"):
        changed_files(spec)


@pytest.mark.timeout(20)
def test_a_pipe_and_a_device_are_no_files_of_a_program(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path / "none"):
        with pytest.raises(OSError, match=r"it is no file|No such file"):
            digest(str(path))


def test_files_are_read_no_further_than_their_size_and_a_limit(tmp_path: Path) -> None:
    endless, nothing = "/proc/self/pagemap", tmp_path / "nothing"
    nothing.touch()
    assert digest(endless) == digest(str(nothing))
    files = {}
    for name in "abc":
        (tmp_path / name).write_text(name * 100)
        files[str(tmp_path / name)] = digest(str(tmp_path / name))
    spec = spec_of("x", files=files)
    assert changed_files(spec, most=300) == []
    with pytest.raises(ValueError, match=r"/c has 100 bytes, more than are read .* at most 299 of all: "):
        changed_files(spec, most=299)


# What needs no process


def test_values_take_the_places_of_their_names_and_stay_within_their_words() -> None:
    command = "run '{data_count} of {N}' --seed={seed} {max_steps} {target} {word} {flag} {small} '{{N}}' {{ }}"
    spec = spec_of(command, options={"word": "two words; $(x) {N}", "flag": True, "small": 1e-05})
    assert words_of(spec) == [
        "run", "7 of 4", "--seed=3", "2000", "0.9", "two words; $(x) {N}", "true", "1e-05", "{N}", "{", "}",
    ]  # fmt: skip
    assert names_in(["{a}{{b}}", "c"], ["a"]) == {"a"}
    for name in ("seed", "dataset"):
        with pytest.raises(ValueError, match=f"the option {name} has the name of a value that every run has"):
            words_of(spec_of("x", options={name: "$(touch it)"}))
    wrong = {word: word for word in ("{noise}", "{stop}", "{N", "{ N }", "{}")}
    for word, place in (wrong | {"x{": "{"}).items():
        with pytest.raises(ValueError, match="is no value of a run") as caught:
            fill(word, {"N": 4, "seed": 3})
        cure = ". If it is a setting of the program, declare it: --vary noise=VALUE" if word == "{noise}" else ""
        assert str(caught.value) == f"{place} is no value of a run: choose one of N, seed, and write {{{{ for a brace{cure}"


def test_the_task_needs_nothing_but_the_spec() -> None:
    task, spec = ProgramTask(), spec_of("x", options={"noise": 0.1})
    assert isinstance(task, Task)
    assert counts_of(task, spec) == Counts(1, 90)
    for change in ({"program": "y"}, {"files": '{"x": "1"}'}, {"counts": "1..91"}, {"noise": 0.2}):
        other = spec_of("x", options={"noise": 0.1, **change})
        assert run_key(other, task.version) != run_key(spec, task.version)
    assert task.curve(spec) == task.curve(spec_of("x", N=9, seed=5, options={"noise": 0.1, "counts": "1..400"}))
    assert task.curve(spec) != task.curve(spec_of("x", options={"noise": 0.2}))
    for text in ("", "1..x", "-1..3", "1..99999999999"):
        with pytest.raises(ValueError, match="give the program with --program"):
            task.counts(spec_of("x", options={"counts": text}))
    with pytest.raises(ValueError, match="keeps its data"):
        task.data(spec)


def test_of_a_line_without_end_no_more_is_kept_than_is_read() -> None:
    heard: list[bytes] = []
    lines = _Lines(heard.append)
    for chunk in (b'{"a": 1', *[b" " * 1000] * 500, b"}\n", b"x" * 300_000, b"\n\n{}\n  {1\n0.5"):
        lines.take(chunk)
        assert len(lines._part) <= KEPT
    lines.finish()
    assert [line[:9] for line in heard] == [b'{"a": 1  ', b"{}", b"  {1"]
    assert len(heard[0]) == LONGEST_LINE + 1
    assert lines.last[-3:] == ["{}", "  {1", "0.5"]
    lines.take(b"".join(b"%d\n" % i for i in range(10_000)) + b"\n" * 50)
    assert lines.last == [str(i) for i in range(9980, 10_000)]
    lines.take(b"10 %\r20 %\r30 %\r\n")
    assert lines.last[-1] == "30 %"


def test_what_follows_a_bar_of_progress_in_its_line_is_read() -> None:
    heard: list[bytes] = []
    lines = _Lines(heard.append)
    lines.take(b'50 %\r100 %\r{"accuracy": 0.5}\n')
    lines.take(b'{"accuracy": 0.6}\r\n')
    for _ in range(5000):  # a line of more bytes than are kept
        lines.take(b"\r" + b"#" * 50)
    lines.take(b'\r{"accuracy"')
    lines.take(b": 0.7}\r")
    assert len(lines._part) < 100
    lines.take(b"\n0.8\r")
    lines.finish()
    assert [line.strip() for line in heard] == [b'{"accuracy": 0.5}', b'{"accuracy": 0.6}', b'{"accuracy": 0.7}']
    assert lines.last == ['{"accuracy": 0.5}', '{"accuracy": 0.6}', '{"accuracy": 0.7}', "0.8"]


@pytest.mark.parametrize("draws", [0, 1, 40])
def test_an_example_in_awk_tells_the_share_that_it_found(draws: int) -> None:
    file = ROOT / "examples" / "coupons.awk"
    spec = spec_of(f"awk -v kinds={{N}} -v draws={{data_count}} -v seed={{seed}} -f {file}", data_count=draws)
    result = ended(ProgramRun(spec))
    assert (result["status"], result["steps"], result["curve_step"]) == ("passed" if draws == 40 else "missed", draws, [draws])
    assert result["accuracy"] == (draws / 4 if draws < 40 else 1.0)


class Flag:
    def set(self) -> None: ...


def told(*lines: Any, **fields: Any) -> Told:
    found = Told(spec_of("x", **fields), Flag())  # type: ignore[arg-type]
    for line in lines:
        found.hear(line if isinstance(line, bytes) else json.dumps(line).encode())
    return found


def test_a_long_curve_keeps_its_shape_and_its_end() -> None:
    found = told(*({"step": i, "accuracy": i / 10**4} for i in range(1, 5001)))
    steps, _, accuracies, _ = found.curves
    assert MOST_POINTS / 2 <= len(steps) <= MOST_POINTS
    assert steps == sorted(steps)
    assert steps[-1] == 5000
    assert accuracies == [step / 10**4 for step in steps]


def test_what_is_no_number_is_passed_over() -> None:
    deep = b'{"a":' * 10_000
    huge = b'{"step": ' + b"9" * 5000 + b"}"
    found = told(deep, huge, b"{\xff}", {"step": -1, "accuracy": "1"}, {"step": 2**40, "loss": 1}, {"step": 1.5}, {"x": None})
    assert (found.step, found.accuracy, found.loss, found.measures, found.verdict) == (0, None, 1.0, {}, "")
    many = told({f"m{i}": i for i in range(500)}, {"m3": -1, "\x1b[31m": 1, "n" * 101: 1, "big": 10**400})
    assert len(many.measures) == 100
    assert many.measures["m3"] == -1
    assert not {"\x1b[31m", "n" * 101, "big"} & set(many.measures)
