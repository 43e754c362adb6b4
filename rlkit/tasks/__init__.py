"""Tasks: prompts, gold answers, splits and rewards. `get_task` finds them by name, `from_data` takes own data."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submod_attrs={"base": ["Task", "get_task"], "data": ["from_data"]}
)
