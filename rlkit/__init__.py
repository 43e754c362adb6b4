"""rlkit: step through LLM post-training methods, one notebook each, on top of TRL.

Names load on first use, so `import rlkit` costs milliseconds and neither torch nor TRL.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=["history", "plots", "rewards", "stats", "tasks", "widgets"],
    submod_attrs={
        "claims": ["Claim"],
        "exercises": ["check"],
        "grading": ["grade", "grade_batch"],
        "method": ["Context", "Method", "catalog"],
        "models.loading": ["load"],
        "runs": ["Arm", "arm", "measure", "run"],
        "steps.compare": ["Comparison", "compare"],
        "steps.step": ["Step"],
        "study": ["Study"],
        "trainers.factory": ["trainer"],
        "trainers.distill": ["DistillTrainer"],
        "trainers.rlvr": ["RLVRTrainer"],
    },
)
