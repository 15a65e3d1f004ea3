# SPDX-License-Identifier: Apache-2.0
"""The experiment runner and the command line, on top of allocators, workloads and reports."""

__version__: str


def __getattr__(name: str) -> str:
    """`__version__`, of the installed package or of the checkout, read when it is first needed."""
    if name != "__version__":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from importlib import metadata  # takes longer to import than the rest of this package

    try:
        version = metadata.version("allocbench")
    except metadata.PackageNotFoundError:
        version = _of_checkout() or "unknown (not installed)"
    globals()["__version__"] = version
    return version


def _of_checkout() -> str | None:
    """The version in the pyproject.toml of the checkout that this file belongs to, if any."""
    import tomllib
    from pathlib import Path

    try:
        text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
        project = tomllib.loads(text).get("project", {})
    except (OSError, ValueError):
        return None
    return project.get("version") if project.get("name") == "allocbench" else None
