"""`scaling` as ever, but with so much patience with a bucket: `python -m tests.orchestrator.impatient SECONDS OPTIONS`."""

import sys

import orchestrator.remote
import orchestrator.scaling

if __name__ == "__main__":
    orchestrator.remote.PATIENCE = float(sys.argv.pop(1))
    orchestrator.remote.TELL_AFTER = 0.5
    orchestrator.scaling.main()
