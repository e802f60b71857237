"""Threads of NumPy's matrix products, whose number changes the last bits of their results."""

from __future__ import annotations


def use_one_numpy_thread() -> None:
    """Let the process's matrix products in NumPy run on one thread.

    Libraries that threadpoolctl does not know, such as Apple's, keep their number.
    """
    # Imported here, because few networks run NumPy bodies; it takes 8 ms.
    from threadpoolctl import threadpool_limits

    threadpool_limits(limits=1, user_api="blas")


def matrix_library() -> str:
    """Return name, version and processor of NumPy's matrix library; empty for an unknown one."""
    from threadpoolctl import threadpool_info

    known = [each for each in threadpool_info() if each["user_api"] == "blas"]
    # Other packages, such as SciPy, bring libraries of their own.
    for found in sorted(known, key=lambda each: "numpy" not in each["filepath"]):
        parts = (found["internal_api"], found["version"], found.get("architecture"))
        return " ".join(filter(None, parts))
    return ""
