"""What would make a run useless, found in seconds before it costs hours: `rlkit doctor`.

`checks` is what is called; `data` looks at the rows, `model` at prompts and rollouts, `machine` at the computer.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=["checks", "data", "machine", "model"],
    submod_attrs={"checks": ["Check", "Report", "columns_of", "diagnose"], "machine": ["inspect"]},
)
