"""What `rlkit.run` gives back: all metrics in one tidy table, and short ways to values, figures and verdicts."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from rlkit.claims import ENOUGH_SEEDS, PRELIMINARY, decide
from rlkit.method import near
from rlkit.runs import results
from rlkit.stats import auc, interval, smallest_detectable, summary
from rlkit.steps.step import Step

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from rlkit.runs import Arm
    from rlkit.runs.store import Entry

COLUMNS = ["arm", "seed", "step", "metric", "value", "source"]

Stored = tuple[str, int, bytes, Mapping[str, str]]
"""(arm, seed, CSV, type of each column)."""


@dataclass
class Runs:
    """Finished runs."""

    arms: list[Arm]
    frame: pd.DataFrame
    """Tidy: arm, seed, step, metric, value, source ("run", or "recorded" for what was not trained here)."""
    timing: pd.DataFrame
    """The same for seconds, which differ from machine to machine."""
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of each arm: setting to value, as text."""
    totals: pd.DataFrame = field(default_factory=pd.DataFrame)
    """One row per run: optimiser steps, generated tokens, trained tokens."""
    keys: dict[tuple[str, int], str | None] = field(default_factory=dict)
    """(arm, seed) to the run's name in the store; None for what could not be cached."""
    notes: list[str] = field(default_factory=list)
    """What a reader must know, such as runs in which nothing was learnable."""
    machine: dict[str, str] = field(default_factory=dict)
    """Class of the machine and versions of the libraries; empty where they differ between runs."""
    stored: dict[str, list[Stored]] = field(default_factory=dict, repr=False)
    """Further tables of the runs by name, as they were stored: read them with `table`."""

    kept_steps: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict, repr=False)
    """(arm, seed) to steps as they were stored, by number: read them with `steps`."""

    @classmethod
    def collect(
        cls,
        arms: Sequence[Arm],
        runs: Sequence[tuple[Arm, int, Entry]],
        keys: Mapping[tuple[str, int], str | None],
        notes: Sequence[str],
    ) -> Runs:
        """From entries of the store."""
        metrics = [read_rows(entry.text("metrics.csv"), arm.label, seed) for arm, seed, entry in runs]
        timing = [read_rows(entry.text("timing.csv"), arm.label, seed) for arm, seed, entry in runs]
        settings = {arm.label: {name: value for name, value, _ in entry.meta["settings"]} for arm, _, entry in runs}
        totals = pd.DataFrame([{"arm": arm.label, "seed": seed, **entry.meta["totals"]} for arm, seed, entry in runs])
        frame, times = (pd.concat(parts, ignore_index=True) for parts in (metrics, timing))
        machines = [entry.meta["machine"] for _, _, entry in runs]
        machine = machines[0] if all(other == machines[0] for other in machines) else {}
        steps = {
            (arm.label, seed): {number: entry.files[f"step_{number}.json"] for number in entry.meta["steps"]}
            for arm, seed, entry in runs
            if entry.meta.get("steps")
        }
        return cls(list(arms), frame, times, settings, totals, dict(keys), list(notes), machine, _stored(runs), steps)

    def table(self, name: str) -> pd.DataFrame:
        """A table that the runs stored beside their metrics, such as "examples": columns arm, seed, then its own.

        Raises:
            ValueError: no run has such a table. Those read from recorded data have none.
        """
        if name not in self.stored:
            raise ValueError(
                f"These runs have no table {name!r}. {_known(self.stored)} Runs read from recorded data have metrics "
                'only: in a notebook, keep what is computed from a table with study.keep("name", lambda: ...).'
            )
        parts = [(arm, seed, results.read_frame(text, types)) for arm, seed, text, types in self.stored[name]]
        frame = pd.concat([part.assign(arm=arm, seed=seed) for arm, seed, part in parts], ignore_index=True)
        return frame[["arm", "seed", *frame.columns.drop(["arm", "seed"])]]

    def steps(self, arm: str, seed: int = 0) -> dict[int, Step]:
        """The steps in slow motion that `record_steps=` kept of a run, by number.

        Raises:
            ValueError: none was kept of this run.
        """
        if (arm, seed) not in self.kept_steps:
            raise ValueError(f"No step was kept of arm {arm!r}, seed {seed}: run it with record_steps=[0, ...].")
        return {number: Step.from_dict(json.loads(text)) for number, text in self.kept_steps[arm, seed].items()}

    @property
    def milliseconds(self) -> float:
        """Median time of one optimiser step, to 2 digits; 0 where no step was timed."""
        times = self.timing[self.timing["metric"] == "step_time"]["value"]
        return float(f"{1000 * times.median():.2g}") if len(times) else 0.0

    @property
    def labels(self) -> list[str]:
        """Names of the arms that have data."""
        have = set(self.frame["arm"])
        return [arm.label for arm in self.arms if arm.label in have]

    @property
    def roles(self) -> dict[str, str]:
        """Arm to role, for `rlkit.plots`."""
        return {arm.label: arm.role for arm in self.arms if arm.label in self.labels}

    def value(self, metric: str, at: str | int = "last", x: str = "step") -> pd.DataFrame:
        """One number per run, as a table arm x seed; NaN where an arm has no such seed.

        Args:
            metric: a metric of the frame.
            at: "last", "auc" (mean height of the curve over `x`), or a step.
            x: what the area is taken over: "step", or a metric that grows, such as "generated_tokens".

        Raises:
            ValueError: no such metric; an arm without it; a step at which it was not logged.
        """
        part = self._metric(metric)
        if missing := [label for label in self.labels if label not in set(part["arm"])]:
            raise ValueError(f"Arm {missing[0]!r} has no metric {metric!r}.")
        values = {key: self._number(rows, at, x) for key, rows in part.groupby(["arm", "seed"])}
        return pd.Series(values).unstack().reindex(self.labels)

    def _metric(self, metric: str) -> pd.DataFrame:
        part = self.frame[self.frame["metric"] == metric]
        if part.empty:
            raise ValueError(f"No metric {metric!r} in these runs. {near(metric, list(self.frame['metric'].unique()))}")
        return part.sort_values("step", kind="stable")

    def _number(self, rows: pd.DataFrame, at: str | int, x: str, end: float | None = None) -> float:
        """`end`: where an area ends."""
        if at == "last":
            return float(rows["value"].iloc[-1])
        if at == "auc":
            known = rows[rows["value"].notna()]
            return auc(*cut(self._positions(known, x), known["value"], end))
        found = rows[rows["step"] == at]
        if found.empty:
            raise ValueError(f"Nothing was logged at {at!r}: 'last', 'auc' or one of {sorted(set(rows['step']))}.")
        return float(found["value"].iloc[-1])

    def _positions(self, rows: pd.DataFrame, x: str) -> Any:
        if x == "step":
            return rows["step"]
        import numpy as np

        first = rows.iloc[0]
        cost = self._metric(x)
        cost = cost[(cost["arm"] == first["arm"]) & (cost["seed"] == first["seed"])]
        return np.interp(rows["step"], cost["step"], cost["value"])

    def comparable(self, a: str, b: str) -> bool:
        """Whether both arms have data of the same origin: trained just now, or recorded."""
        sources = [set(self.frame.loc[self.frame["arm"] == label, "source"]) for label in (a, b)]
        return sources[0] == sources[1] != set()

    def difference(self, metric: str, a: str, b: str, at: str | int = "last", x: str = "step") -> pd.Series:
        """`a` minus `b` per seed that both have; arguments as for `value`.

        An area over a cost ends, for both arms of a seed, where the cheaper one ends: equal cost.

        Raises:
            ValueError: no such arm, no seed in common, or one arm is recorded and the other is not.
        """
        for label in (a, b):
            if label not in self.labels:
                raise ValueError(f"There is no arm {label!r}. {near(label, self.labels)}")
        if not self.comparable(a, b):
            raise ValueError(f"Of {a!r} and {b!r} one was trained just now and the other recorded: they are no pair.")
        part = self._metric(metric)
        left, right = (dict(list(part[part["arm"] == label].groupby("seed"))) for label in (a, b))
        seeds = [seed for seed in left if seed in right]
        if not seeds:
            raise ValueError(f"Arms {a!r} and {b!r} have no seed in common.")
        return pd.Series({seed: self._minus(left[seed], right[seed], at, x) for seed in seeds})

    def _minus(self, a: pd.DataFrame, b: pd.DataFrame, at: str | int, x: str) -> float:
        """Difference of two runs of one seed."""
        if at != "auc" or x == "step":
            return self._number(a, at, x) - self._number(b, at, x)
        end = min(self._positions(rows, x)[-1] for rows in (a, b))
        return self._number(a, at, x, end) - self._number(b, at, x, end)

    @property
    def baseline(self) -> str:
        """The arm that others are compared with: of role baseline, else of method grpo, else the first."""
        arms = [arm for arm in self.arms if arm.label in self.labels]
        ranked = [arm.label for arm in arms if arm.role == "baseline"]
        ranked += [arm.label for arm in arms if arm.method_name == "grpo"]
        return (ranked or self.labels)[0]

    def verdict(self, metric: str = "accuracy", at: str | int = "auc", x: str = "step") -> pd.DataFrame:
        """Every arm against the baseline: paired difference per seed, its 95 % interval, and better, worse or neither.

        Fewer than 5 seeds: preliminary. The last column is the smallest difference that could have been shown.
        """
        rows, means = [], self.value(metric, at, x).mean(axis=1)
        for label in self.labels:
            row: dict[str, Any] = {"arm": label, metric: means[label]}
            if label != self.baseline:
                row |= _compared(self.difference(metric, label, self.baseline, at, x))
            rows.append(row)
        table = pd.DataFrame(rows).set_index("arm")
        return table.rename(columns={"difference": f"minus {self.baseline}"})

    def plot(self, metric: str = "accuracy", x: str = "step", **options: Any) -> Figure:
        """Curves with their 95 % intervals; `options` go to `rlkit.plots.curves`."""
        from rlkit import plots

        return plots.curves(self.frame, metric, x=x, **{"roles": self.roles, **options})

    def summary(self, metric: str = "accuracy", at: str | int = "last") -> pd.DataFrame:
        """Mean, interval and number of seeds of each arm."""
        return summary(self.value(metric, at))

    def __repr__(self) -> str:
        return f"{self._head()}\n{self._shown().to_string()}"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<p>{escape(self._head())}</p>{self._shown().to_html()}"

    def _head(self) -> str:
        seeds = self.frame["seed"].nunique()
        return f"{len(self.labels)} arms, {seeds} seed{'s' * (seeds != 1)}, {self.frame['step'].max()} steps"

    def _shown(self) -> pd.DataFrame:
        metrics = set(self.frame["metric"])
        return self.summary("accuracy" if "accuracy" in metrics else sorted(metrics)[0])


def _stored(runs: Sequence[tuple[Arm, int, Entry]]) -> dict[str, list[Stored]]:
    found: dict[str, list[Stored]] = {}
    for arm, seed, entry in runs:
        for name, types in entry.meta.get("tables", {}).items():
            found.setdefault(name, []).append((arm.label, seed, entry.files[f"{name}.csv"], types))
    return found


def _known(tables: Mapping[str, Any]) -> str:
    return f"They have {', '.join(map(repr, tables))}." if tables else "They have none."


def cut(x: Any, y: Any, end: float | None) -> tuple[Any, Any]:
    """A curve up to x = `end`, the height there read off between its points; whole for None."""
    import numpy as np

    xs, ys = np.asarray(x, float), np.asarray(y, float)
    if end is None or end >= xs[-1]:
        return xs, ys
    inside = xs < end
    return np.append(xs[inside], end), np.append(ys[inside], np.interp(end, xs, ys))


def read_rows(text: str, label: str, seed: int, source: str = "run") -> pd.DataFrame:
    """Rows of a metrics file, under the name that the arm has here."""
    frame = pd.read_csv(io.StringIO(text), converters={"value": float})  # pandas' own reading may lose the last digit
    return frame.assign(arm=label, seed=seed, source=source)[COLUMNS]


def _compared(difference: pd.Series) -> dict[str, Any]:
    mean, lo, hi = interval(difference)
    words = {"supported": "better", "refuted": "worse", "inconclusive": "inconclusive"}
    n = len(difference)
    side = decide(">", 0.0, lo, hi) if n > 1 and not lo == hi == 0 else "inconclusive"
    word = words[side]
    return {
        "difference": mean,
        "lo": lo,
        "hi": hi,
        "seeds": n,
        "verdict": PRELIMINARY + word if n < ENOUGH_SEEDS else word,
        "could show": smallest_detectable(difference),
    }
