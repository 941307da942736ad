"""What a command looks at before it imports anything else: the folder that it is started in.

It is imported first, so it uses nothing that Python has not loaded by then: a file in that folder could stand in its place.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import FrozenImporter, PathFinder

TYPE_CHECKING = False  # as in typing, which Python has not loaded by then
if TYPE_CHECKING:
    from types import TracebackType

PACKAGES = {
    "_cffi_backend", "aiohttp", "aiosignal", "annotated_types", "attr", "attrs", "boto3", "botocore", "certifi", "cffi",
    "charset_normalizer", "click", "cloudpickle", "colorlog", "contourpy", "crc32c", "cycler", "dateutil", "filelock",
    "fontTools", "frozenlist", "fsspec", "functorch", "google", "grpc", "idna", "jinja2", "joblib", "jsonschema",
    "kiwisolver", "llvmlite", "markdown_it", "markupsafe", "matplotlib", "mdurl", "mpl_toolkits", "mpmath", "msgpack",
    "multidict", "networkx", "numba", "numpy", "optuna", "packaging", "pandas", "PIL", "propcache", "psutil", "pyarrow",
    "pydantic", "pydantic_core", "pygments", "pynndescent", "pyparsing", "ray", "referencing", "requests", "rich", "rpds",
    "safetensors", "scipy", "shellingham", "six", "sklearn", "sqlalchemy", "sympy", "tensorboardX", "threadpoolctl",
    "torch", "torchgen", "tqdm", "triton", "typer", "typing_extensions", "umap", "urllib3", "yaml", "yarl",
}  # fmt: skip
"""Those that this project needs, and those that these need: Ray, torch and the others."""
USAGE, INTERRUPTED = 2, 130
NEEDLESS = {"__hello__", "__phello__", "antigravity", "idlelib", "this", "turtle", "turtledemo"}
"""Of Python's own library, what nothing here can need."""


def is_command() -> bool:
    """Whether this process is that of a command of this project: `python -m orchestrator.scaling`, for example, or `sweep`."""
    if sys.argv[:1] == ["-m"]:
        return _module().partition(".")[0] in ("orchestrator", "analysis")
    file = sys.argv[0] if sys.argv[:1] else ""
    return file.rpartition("/")[2] == "sweep" and _folder(file) == _folder(sys.executable)


def _folder(file: str) -> str:
    """That of a file, which may be named from the folder that the command is started in."""
    try:
        return os.path.dirname(os.path.abspath(file))  # noqa: PTH100, PTH120
    except OSError:  # that is gone
        return os.path.dirname(file)  # noqa: PTH120


def _module() -> str:
    """The module that Python was told to run, as by `-m NAME`, `-um NAME` or `-mNAME`."""
    words = iter(sys.orig_argv[1:])
    for word in words:
        letter = next((letter for letter in word[1:] if letter in "mWX-"), "")  # the options that take a value
        if letter:
            joined = "" if letter == "-" else word[1:].partition(letter)[2]
            value = joined or next(words, "")
            if letter == "m":
                return value
    return ""


def mistake() -> str | None:
    """Why no command can be started in this folder, if so: it is gone, or a file in it hides a module that is needed.

    `python -m` and the workers of Ray look for modules in the folder that a command is started in before they look elsewhere;
    the workers do so even if `python -P` does not. So a file there with the name of a module of Python's own library, or of one
    of PACKAGES, is run in its place: at best it ends the command with an error that names neither. All modules of the library
    count, as which of them are imported depends on versions. Where no other module has the name, or Python holds it in itself,
    nothing is hidden. The folders of PYTHONPATH are not looked at: what lies there is meant to come first.
    """
    try:
        here = os.getcwd()  # noqa: PTH109, as pathlib could be what is hidden
    except OSError:
        return "the folder in which this was started does not exist any more: change to one that does"
    try:
        files = os.listdir(here)  # noqa: PTH208
    except OSError:  # Python cannot look there either
        return None
    elsewhere = [folder for folder in sys.path if folder not in ("", here)]
    for name in sorted({file.partition(".")[0] for file in files} & (sys.stdlib_module_names | PACKAGES) - NEEDLESS):
        if FrozenImporter.find_spec(name) is not None:
            continue
        found, meant = PathFinder.find_spec(name, [here]), PathFinder.find_spec(name, elsewhere)
        if found is None or meant is None or found.origin is None or meant.origin is None:
            continue
        if os.path.realpath(found.origin) != os.path.realpath(meant.origin):
            whose = "Python" if name in sys.stdlib_module_names else "a library that is needed"
            return f"{found.origin} hides the module {name} of {whose}: rename it, or start in another folder"
    return None


def begin() -> None:
    """Begin the process of a command: end it if there is a `mistake`. From now on Ctrl-C, where nothing heeds it, ends it
    without a traceback; up to `begun` at once, as an exception could get lost in what is imported meanwhile, or leave it half
    imported."""
    if (told := mistake()) is not None:
        print("error: " + " ".join(told.split()), file=sys.stderr)
        sys.exit(USAGE)
    former = sys.excepthook

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            print("interrupted", file=sys.stderr)
            sys.exit(INTERRUPTED)
        former(kind, error, trace)

    sys.excepthook = tell
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def begun() -> None:
    """All that a command needs is imported: from now on Ctrl-C raises KeyboardInterrupt, as usual."""
    import signal

    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(*_: object) -> None:
    os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)
