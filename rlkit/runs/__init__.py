"""Arms x seeds -> cached, parallel, resumable runs -> one tidy table.

`arms` is what is called; `keys`, `digest` and `sources` name a run, `store` and `results` keep it, `grid`, `pool` and
`jobs` hand it to workers, `training` does it, `table` is what comes back.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=[
        "digest",
        "grid",
        "jobs",
        "keys",
        "pool",
        "progress",
        "results",
        "sources",
        "store",
        "table",
        "training",
    ],
    submod_attrs={
        "arms": ["Arm", "arm", "as_arms", "measure", "measure_key", "planned_steps", "run", "run_key", "seed_list"],
        "grid": ["RunError"],
        "table": ["Runs"],
    },
)
