"""Does a completion give the gold answer? Right, and bounded in time and memory.

`grader` is what is called; `answers` finds the answer, `quantities` reads numbers and units, `equality` compares,
`algebra` asks math-verify about formulas, `bounded` runs that in worker processes with limits.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=["algebra", "answers", "bounded", "equality", "grader", "quantities"],
    submod_attrs={"grader": ["Grades", "answer_of", "answer_of_gold", "grade", "grade_batch"]},
)
