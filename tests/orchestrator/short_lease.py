"""`scaling` as ever, but a launch of another machine that has died holds its claims for 10 s only."""

import orchestrator.scaling
import orchestrator.store.leases


def main() -> None:
    orchestrator.store.leases.LEASE_SECONDS = 10.0
    orchestrator.scaling.main()


if __name__ == "__main__":
    main()
