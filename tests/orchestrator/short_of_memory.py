"""`scaling` as ever, but of the first worker that dies Ray says that it has killed it to save memory."""

from typing import Any

import orchestrator.engine.driver
import orchestrator.scaling


def main() -> None:
    fit = orchestrator.engine.driver._fit

    def fit_with_little_memory(*given: Any) -> None:
        from ray.air.execution._internal.actor_manager import RayActorManager  # Ray must know before how to authenticate
        from ray.exceptions import OutOfMemoryError, RayActorError

        died: list[Exception] = []
        was = RayActorManager._actor_task_failed

        def failed(manager: Any, tracked_actor_task: Any, exception: Exception) -> None:
            if not died and isinstance(exception, RayActorError):
                died.append(exception)
                exception = OutOfMemoryError("1 worker(s) were killed due to the node running low on memory.")
            was(manager, tracked_actor_task, exception)

        RayActorManager._actor_task_failed = failed
        fit(*given)

    orchestrator.engine.driver._fit = fit_with_little_memory
    orchestrator.scaling.main()


if __name__ == "__main__":
    main()
