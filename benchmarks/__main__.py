"""`python -m benchmarks [PART ...] [--quick] [--dry]`: measure, print, and write the tables into benchmarks/README.md.

Each part runs in a process of its own, so that none finds what another has left: `report(quick)` of its file.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor

from benchmarks.readme import measure, summarise, write

PARTS = {
    "step": "time per training step against stock TRL",
    "scaling": "the same against stock TRL and a hand-written loop, over size, group and length; memory",
    "overhead": "what a step of each method costs",
    "seams": "what a hook costs that changes nothing",
    "opd_step": "time per distillation step against stock TRL",
    "opd_memory": "memory of a distillation loss",
    "slow_motion": "what looking at a step costs",
    "replay": "what a replay buffer costs",
    "grading": "speed and rightness of the grader",
    "notebook": "where the time of a notebook goes; imports, and the start of a worker",
    "gpu_fit": "does a step of preset gpu fit a consumer card (an NVIDIA GPU; only when it is named)",
}


def main() -> None:
    """Measure the parts that are named, or all."""
    listed = "\n".join(f"  {part:<12} {what}" for part, what in PARTS.items())
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("benchmarks", description=f"{__doc__}\n{listed}", formatter_class=layout)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*PARTS, []], help="default: all but gpu_fit")
    parser.add_argument("--quick", action="store_true", help="few repetitions: minutes, and wide spreads")
    parser.add_argument("--dry", action="store_true", help="print only")
    given = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")  # of the libraries, about each other
    for part in given.parts or [part for part in PARTS if part != "gpu_fit"]:
        started = time.perf_counter()
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
            found = alone.submit(measure, part, given.quick).result()
        print(f"## {part}: {time.perf_counter() - started:.0f} s\n\n{found.text}\n", flush=True)
        for what, measured in found.summary:
            print(f"{what}: {measured}", flush=True)
        if not given.dry:
            write(part, found.text)
            summarise(part, found.summary, tuple(PARTS))


if __name__ == "__main__":
    main()
