"""Versions of what decides a result, for the record."""

import functools
import importlib.metadata
import platform

PROJECT = "sweep-orchestrator"


@functools.cache
def versions() -> str:
    """Those of the process that asks: of Python, this project, torch, Ray and NumPy, as `name=version` with spaces between."""
    names = (PROJECT, "torch", "ray", "numpy")
    return " ".join([f"python={platform.python_version()}", *(f"{name}={version_of(name)}" for name in names)])


@functools.cache
def version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
