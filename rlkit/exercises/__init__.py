"""Exercises of the notebooks, checked against our own functions: `rlkit.check("median_baseline.advantage", mine)`.

One module for each notebook, named by its slug, with `EXERCISES: dict[str, Exercise]`. A module is read when it is
asked for; `names()` lists all. A function that never ends is not stopped: interrupt the kernel.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=["compare"],
    submod_attrs={
        "checking": ["Outcome", "check", "names", "strict"],
        "exercise": ["Case", "Exercise"],
    },
)
