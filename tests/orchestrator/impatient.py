"""`scaling` as ever, but with so much patience with a bucket: `python -m tests.orchestrator.impatient SECONDS OPTIONS`."""

import sys

import orchestrator.scaling
import orchestrator.store.remote


def main() -> None:
    orchestrator.store.remote.PATIENCE = float(sys.argv.pop(1))
    orchestrator.store.remote.TELL_AFTER = 0.5
    orchestrator.scaling.main()


if __name__ == "__main__":
    main()
