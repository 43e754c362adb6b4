"""What a notebook holds: its runs, measurements, figures and claims, and where they are written to.

Only the preset `full` with nothing else changed writes to `figures/SLUG` and `data/recorded/SLUG`; everything else
writes to `build/figures/PRESET/SLUG`, with the metrics of its runs as `runs.csv`, which `rlkit pool` merges. In
recorded mode (`RLKIT_RECORDED=1`) nothing is trained: all is read back. The presets that train a real model read the
tiny part back as well (`rlkit/real_model.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from rlkit import paths, runs
from rlkit.claims import Claim, Verdict, Verdicts, judge, read_claims, write_claims
from rlkit.course.pool import NAME as RUNS
from rlkit.course.pool import export
from rlkit.files import check_writable, write_atomic
from rlkit.fingerprint import check_fingerprint, fingerprint
from rlkit.presets import get_preset
from rlkit.real_model import RealModel
from rlkit.recorded import INDEX, NotRecorded, Recorded, kept
from rlkit.runs import results
from rlkit.runs.digest import digest, join
from rlkit.runs.table import Runs
from rlkit.steps.study import SlowMotion

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rlkit.method import Method

__all__ = ["NotRecorded", "Study", "check_fingerprint"]

KEEP = ("accuracy", "rollout_accuracy", "reward", "generated_tokens", "trained_tokens")
KEPT = {"kept": True}
"""In place of a measurement's inputs: tells what `Study.keep` recorded from a measure function of the same name."""


class Study(RealModel, SlowMotion):
    """A notebook's experiment.

    Args:
        slug: the notebook.
        preset: where settings, seeds and arms come from.
        seeds: how many seeds, or which; 0 for the preset's.
        steps: optimiser steps of every run; 0 for the preset's.
        model: a base, folder or hub id; "" for the preset's.
        parameters: the notebook's other parameters: a changed one keeps results out of `figures/`.

    Raises:
        OSError: its results could not be written; better now than after the training.
    """

    def __init__(
        self,
        slug: str,
        preset: str = "tiny",
        seeds: int | Sequence[int] = 0,
        steps: int = 0,
        model: str = "",
        **parameters: Any,
    ) -> None:
        self.slug, self.preset = slug, get_preset(preset).name
        self.seeds = seeds or get_preset(preset).seeds
        given: dict[str, Any] = {name: value for name, value in (("max_steps", steps), ("model", model)) if value}
        redraw = os.environ.get("RLKIT_RECORDED") == "1"
        self.recorded = redraw or (get_preset(preset).real and (paths.recorded(slug) / INDEX).is_file())
        # Where the tiny part is read, steps and model are the real one's.
        self.common, self.real_common = ({} if get_preset(preset).real and self.recorded else given), given
        changed = bool(seeds or given) or _differ(slug, parameters)
        self.writes, self.output, self.evidence = _destination(slug, self.preset, changed, redraw)
        for folder in (self.output, *([self.evidence] if self.writes and not self.recorded else [])):
            check_writable(folder)
        self._kept = Recorded(slug, self.preset)
        self._committed = _committed(slug)
        self._verdicts: dict[str, Verdict] = {}

    def run(
        self,
        arms: Sequence[runs.Arm | str | Method],
        keep: Sequence[str] = KEEP,
        seeds: int | Sequence[int] | None = None,
        **options: Any,
    ) -> Runs:
        """Train the arms of this preset's tiers, or read them in recorded mode; fill the others from recorded data.

        Args:
            arms: arms of the study; labels are unique in a notebook.
            keep: the metrics that figures and claims read. Nothing else is in the result, so that what is drawn now
                can be redrawn from recorded data.
            seeds: how many of the study's seeds, for a screening panel that carries no claim; or which other ones, for
                runs that only choose (an example, a setting): claims must not see what was chosen by. Recorded runs
                have the seeds that they were recorded with.
            options: `workers`, `progress`, `fresh` as for `rlkit.run`.

        Raises:
            NotRecorded: in recorded mode, an arm that was not recorded like this.
        """
        chosen = runs.as_arms(arms)
        if self.recorded:
            return self._read(chosen, keep)
        tiers = get_preset(self.preset).tiers
        mine = [arm for arm in chosen if arm.tier in tiers]
        few = runs.seed_list(self.seeds, 1)[:seeds] if isinstance(seeds, int) else seeds or self.seeds
        done = runs.run(mine, preset=self.preset, seeds=few, tiers=tiers, **options, **self.common)
        self._keep_runs(mine, done, keep)
        done.frame = pd.concat([kept(done.frame, keep), *self._filled(chosen, tiers, keep)], ignore_index=True)
        done.arms = chosen
        return done

    def _keep_runs(self, arms: Sequence[runs.Arm], done: Runs, keep: Sequence[str]) -> None:
        if self.writes and not done.machine:
            raise ValueError("The stored runs come from different machines or library versions: run with --fresh.")
        self._kept.add_runs(arms, kept(done.frame, keep), done.keys)
        self._kept.milliseconds = done.milliseconds
        new = fingerprint(done.frame, arms, done.machine)
        self._kept.fingerprint = {**new, "arms": {**self._kept.fingerprint.get("arms", {}), **new["arms"]}}
        self._flush()
        if not self.writes:
            roles = {label: arm["role"] for label, arm in self._kept.arms.items()}
            own = self._kept.frame[self._kept.frame["seed"].isin(runs.seed_list(self.seeds, 1))]
            write_atomic(self.output / RUNS, export(own, self.slug, self.preset, roles))

    def _filled(self, arms: Sequence[runs.Arm], tiers: Sequence[str], keep: Sequence[str]) -> list[pd.DataFrame]:
        """Recorded rows of the arms that this preset does not run, where there are some."""
        missing = [arm for arm in arms if arm.tier not in tiers]
        try:
            recorded = Recorded.read(paths.recorded(self.slug), self.slug) if missing else None
        except NotRecorded:
            return []
        frames = []
        for arm in missing:
            try:
                frames.append(recorded.runs(arm) if recorded else pd.DataFrame())
            except NotRecorded:  # recorded with other settings: left out rather than drawn wrongly
                continue
        return [frame[frame["metric"].isin(keep)] for frame in frames if len(frame)]

    def _read(self, arms: Sequence[runs.Arm], keep: Sequence[str]) -> Runs:
        recorded = self._data()
        frame = pd.concat([recorded.runs(arm) for arm in arms], ignore_index=True)
        frame = frame.assign(source="run")  # the committed figures are drawn again, not filled up
        return Runs(list(arms), kept(frame, keep), pd.DataFrame(columns=frame.columns))

    def _data(self) -> Recorded:
        if not self._kept.code_key:
            self._kept = Recorded.read(paths.recorded(self.slug), self.slug)
        return self._kept

    def measure(self, function: Callable[..., Any], *, seeds: int | Sequence[int] | None = None, **inputs: Any) -> Any:
        """`rlkit.measure`, recorded with the study; in recorded mode it is read by the function's name and its inputs.

        Raises:
            NotRecorded: in recorded mode, a measurement that was not recorded like this.
        """
        name = getattr(function, "__name__", type(function).__name__)
        given = {**inputs, **({} if seeds is None else {"seeds": runs.seed_list(seeds, 1)})}
        if self.recorded:
            return self._data().measure(name, given)
        key = runs.measure_key(function, inputs, seeds)
        workers = None if os.environ.get("RLKIT_WORKERS") else get_preset(self.preset).workers
        value = runs.measure(function, seeds=seeds, workers=workers, **inputs)
        self._kept.add_measure(name, given, key, value)
        self._flush()
        return value

    def keep(self, name: str, function: Callable[[], Any]) -> Any:
        """What a function makes of this study's runs, recorded under a name; in recorded mode it is read, not computed.

        For what the metrics do not hold: `profile = study.keep("profile", lambda: rlkit.history.variance(runs))`.

        Args:
            name: a word, unique in the notebook.
            function: gives what `rlkit.measure` can keep. Recorded data have a limit: keep what a figure draws.

        Raises:
            NotRecorded: in recorded mode, nothing was recorded under this name.
            ValueError: the name is no plain word.
        """
        if not name.isidentifier():
            raise ValueError(f"study.keep: a name is one word of letters, digits and _, not {name!r}.")
        if self.recorded:
            return self._data().measure(name, KEPT)
        kind, files = results.encode(function())
        value = results.decode(kind, files)
        self._kept.add_measure(name, KEPT, digest(files), value)
        self._flush()
        return value

    def figure(self, name: str, figure: Figure, caption: str = "") -> None:
        """Save a figure as SVG and PNG, and show it with its caption."""
        from rlkit import plots

        plots.save(figure, self.output / name)
        _show(figure, caption)

    def judge(self, claims: Sequence[Claim], values: Mapping[str, Any]) -> Verdicts:
        """Judge claims, write claims.json, and show the verdicts beside the committed ones.

        Args:
            claims: what was claimed.
            values: claim id to one value per seed, or per item of a sample; None for what this preset did not run.

        Raises:
            ValueError: values without a claim, or the other way round; values that are not finite; nothing to judge; a
                claim without values where everything runs.
        """
        if odd := sorted({claim.id for claim in claims} ^ set(values)):
            raise ValueError(f"Claims and values do not match: {odd[0]!r} is in one of them only.")
        claims = [claim for claim in claims if values[claim.id] is not None]
        ids = [claim.id for claim in claims]
        if self.writes and (lacking := sorted(set(values) - set(ids))):
            raise ValueError(f"Claim {lacking[0]!r} has no values, and this run writes the committed claims.")
        if not ids:
            raise ValueError("None of the claims has values.")
        self._verdicts |= {claim.id: judge(claim, values[claim.id]) for claim in claims}
        self._flush()
        verdicts = list(self._verdicts.values())
        preset = self._data().preset if self.recorded else self.preset
        write_claims(self.output / "claims.json", self.slug, preset, self.code_key, verdicts)
        return Verdicts([self._verdicts[claim_id] for claim_id in ids], self._committed)

    @property
    def code_key(self) -> str:
        """A hash over the keys of all runs and measurements; the recorded one in recorded mode."""
        if self.recorded:
            return self._data().code_key
        keys = [key for arm in self._kept.arms.values() for key in arm["keys"].values()]
        keys += [entry["key"] for entry in self._kept.measures.values()]
        return join(*sorted(key or "not cached" for key in keys))

    def _flush(self) -> None:
        """Record what is there: once the claims are judged, so that a notebook that broke off leaves the old data."""
        if self.writes and self._verdicts and not self.recorded:
            self._kept.code_key = self.code_key
            self._kept.write(self.evidence)

    def budget(self, arms: Sequence[runs.Arm | str | Method], milliseconds: float | None = None) -> str:
        """What the arms cost: arms x seeds x steps x milliseconds, before anything is taken from the cache.

        Args:
            arms: the arms; those of other tiers than the preset's do not count.
            milliseconds: a step's time on this machine; default: what it was when the notebook was recorded.
        """
        tiers, seeds = get_preset(self.preset).tiers, len(runs.seed_list(self.seeds, 1))
        mine = [arm for arm in runs.as_arms(arms) if arm.tier in tiers]
        steps = seeds * sum(runs.planned_steps(arm, self.preset, self.common) for arm in mine)
        words = f"Budget: {len(mine)} arms x {seeds} seeds, {steps} steps"
        milliseconds = milliseconds or self._recorded_milliseconds()
        if not milliseconds:
            return f"{words}."
        return f"{words} x {milliseconds:.0f} ms = {steps * milliseconds / 60_000:.1f} min of one core."

    def _recorded_milliseconds(self) -> float:
        try:
            return Recorded.read(paths.recorded(self.slug), self.slug).milliseconds
        except NotRecorded:
            return 0.0


def _destination(slug: str, preset: str, changed: bool, recorded: bool) -> tuple[bool, Path, Path]:
    """Whether evidence is written, the folder of figures and claims, and that of recorded data.

    `rlkit figures` names a folder for both and puts them in the place of the committed ones when all has gone well.
    """
    if folder := os.environ.get("RLKIT_OUTPUT"):
        return os.environ.get("RLKIT_WRITE") == "1", Path(folder), Path(folder) / "recorded"
    evidence = paths.recorded(slug, write=True)
    if recorded or (preset == "full" and not changed):
        return True, paths.figures(slug), evidence
    return False, paths.build() / "figures" / preset / slug, evidence


def _differ(slug: str, parameters: Mapping[str, Any]) -> bool:
    """Whether a parameter differs from the notebook's default."""
    if not parameters:
        return False
    from rlkit import notebooks
    from rlkit.notebooks.parameters import read_parameters

    defaults = {name: known.default for name, known in read_parameters(notebooks.read(slug)).items()}
    return any(name not in defaults or defaults[name] != value for name, value in parameters.items())


def _committed(slug: str) -> dict[str, Any] | None:
    path = paths.committed(slug) / "claims.json"
    return read_claims(path) if path.is_file() else None


def _show(figure: Figure, caption: str) -> None:
    """In a notebook: the figure once, and its caption under it."""
    try:
        from IPython.core.getipython import get_ipython
    except ImportError:
        return
    if get_ipython() is None:
        return
    from IPython.display import Markdown, display
    from matplotlib import pyplot

    display(figure)
    if caption:
        display(Markdown(caption))
    pyplot.close(figure)
