"""Claims that can fail, the one rule that judges them, and the file they are kept in.

The rule: the end point is named beforehand, one number per seed; the estimate is its mean, with a 95 % Student t
interval. `supported`: the whole interval is on the claimed side of the threshold; `refuted`: the whole interval is on
the other side; else `inconclusive`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, PositiveInt, ValidationError

from rlkit.files import write_atomic
from rlkit.stats import finite, interval, smallest_detectable

if TYPE_CHECKING:
    import pandas as pd

OPS = ("<", "<=", ">", ">=", "==")
VERDICTS = ("supported", "refuted", "inconclusive")
PRELIMINARY = "preliminary "
ENOUGH_SEEDS = 5


@dataclass(frozen=True)
class Claim:
    """A statement with a named end point and a threshold, written down before the run."""

    id: str
    """Short name, unique in its notebook."""
    statement: str
    """The claim in words."""
    endpoint: str
    """What is measured, one number per seed: a paired difference or ratio."""
    op: str
    """One of <, <=, >, >=, ==."""
    threshold: float
    """The side of this number decides."""
    unit: str
    """Unit of threshold, estimate and interval."""
    expected: str
    """The verdict that the author expects: supported, refuted or inconclusive."""
    controls: Sequence[str] = ()
    """Names of the arms that the end point is measured against."""
    note: str = ""
    over: str = "seeds"
    """"seeds": one value per trained seed; "sample": one value per item of a sample, nothing is trained."""
    tolerance: float = 0.0
    """Only for ==: how far from the threshold still counts as equal."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "controls", tuple(self.controls))
        if self.op not in OPS:
            raise ValueError(f"Claim {self.id!r}: op is one of {', '.join(OPS)}, not {self.op!r}.")
        if self.expected not in VERDICTS:
            raise ValueError(f"Claim {self.id!r}: expected is one of {', '.join(VERDICTS)}, not {self.expected!r}.")
        if self.over not in {"seeds", "sample"}:
            raise ValueError(f"Claim {self.id!r}: over is 'seeds' or 'sample', not {self.over!r}.")
        if not math.isfinite(self.threshold) or not 0 <= self.tolerance < math.inf:
            raise ValueError(f"Claim {self.id!r}: threshold and tolerance are finite numbers, tolerance at least 0.")
        if self.tolerance and self.op != "==":
            raise ValueError(f"Claim {self.id!r}: a tolerance is for ==; put a margin into the threshold.")


@dataclass(frozen=True)
class Verdict:
    """What the values say about a claim. Numbers are rounded to 6 digits, as they are in claims.json."""

    claim: Claim
    estimate: float
    interval: tuple[float, float]
    seeds: int | None
    """Number of seeds; None for a claim over a sample."""
    n: int
    """Number of values."""
    verdict: str
    detectable: float
    """The smallest distance from the threshold that could have been shown (`rlkit.stats.smallest_detectable`)."""

    @property
    def decided(self) -> str:
        """The verdict without "preliminary"."""
        return plain(self.verdict)


def plain(verdict: str) -> str:
    """A verdict without its "preliminary "."""
    return verdict.removeprefix(PRELIMINARY)


def round6(value: float) -> float:
    """A number rounded to 6 significant digits: below what differs between machines."""
    return float(f"{value:.6g}") + 0.0  # + 0.0 turns -0.0 into 0.0


def decide(op: str, threshold: float, lo: float, hi: float, tolerance: float = 0.0) -> str:
    """Which side of the threshold the interval [lo, hi] is on; >= and <= include the threshold itself."""
    if op == "==":
        low, high = threshold - tolerance, threshold + tolerance
        supported, refuted = low <= lo and hi <= high, hi < low or lo > high
    elif op == "<":
        supported, refuted = hi < threshold, lo >= threshold
    elif op == "<=":
        supported, refuted = hi <= threshold, lo > threshold
    elif op == ">":
        supported, refuted = lo > threshold, hi <= threshold
    else:
        supported, refuted = lo >= threshold, hi < threshold
    return "supported" if supported else "refuted" if refuted else "inconclusive"


def judge(claim: Claim, values: Any) -> Verdict:
    """Judge a claim by its values, shape (n,): one per seed, or one per item of the sample.

    One value decides nothing: it has no interval. Fewer than 5 seeds: the verdict is preliminary.

    Raises:
        ValueError: where there are no values, or one is not finite.
    """
    array = finite(values, f"Claim {claim.id!r}, {claim.endpoint}")
    n = array.size
    estimate, lo, hi = (round6(number) for number in interval(array))
    verdict = decide(claim.op, round6(claim.threshold), lo, hi, round6(claim.tolerance))
    over_seeds = claim.over == "seeds"
    if n == 1:
        verdict = "inconclusive"
    if over_seeds and n < ENOUGH_SEEDS:
        verdict = PRELIMINARY + verdict
    return Verdict(claim, estimate, (lo, hi), n if over_seeds else None, n, verdict, round6(smallest_detectable(array)))


class Verdicts(Mapping[str, Verdict]):
    """The verdicts of a notebook by claim id; shown as a table, beside the committed ones where there are some."""

    def __init__(self, verdicts: Sequence[Verdict], committed: Mapping[str, Any] | None = None) -> None:
        self._verdicts = {verdict.claim.id: verdict for verdict in verdicts}
        if len(self._verdicts) != len(verdicts):
            raise ValueError("Two claims have the same id.")
        self._committed = {claim["id"]: claim["verdict"] for claim in (committed or {}).get("claims", ())}

    def __getitem__(self, claim_id: str) -> Verdict:
        return self._verdicts[claim_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._verdicts)

    def __len__(self) -> int:
        return len(self._verdicts)

    @property
    def table(self) -> pd.DataFrame:
        """One row per claim."""
        import pandas as pd

        rows = [self._row(verdict) for verdict in self._verdicts.values()]
        return pd.DataFrame(rows).set_index("claim") if rows else pd.DataFrame()

    def _row(self, verdict: Verdict) -> dict[str, Any]:
        claim, (lo, hi) = verdict.claim, verdict.interval
        row = {
            "claim": claim.id,
            "statement": claim.statement,
            "claimed": f"{claim.op} {claim.threshold:g} {claim.unit}".rstrip(),
            "estimate": f"{verdict.estimate:.4g} [{lo:.4g}, {hi:.4g}]",
            "could show": f"{verdict.detectable:.2g}",
            "counts": f"{verdict.n} seeds" if verdict.seeds else f"n = {verdict.n}",
            "expected": claim.expected,
            "verdict": verdict.verdict,
        }
        return row | ({"committed": self._committed.get(claim.id, "none")} if self._committed else {})

    def __repr__(self) -> str:
        return self.table.to_string(max_colwidth=60)

    def _repr_html_(self) -> str:
        import pandas as pd

        with pd.option_context("display.max_colwidth", None):
            return self.table.to_html()  # escapes


def claims_document(notebook: str, preset: str, code_key: str, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """What claims.json holds."""
    return {
        "notebook": notebook,
        "preset": preset,
        "code_key": code_key,
        "claims": [_record(verdict) for verdict in verdicts],
    }


def _record(verdict: Verdict) -> dict[str, Any]:
    given = asdict(verdict.claim)
    fixed = {name: given[name] for name in ("id", "statement", "endpoint", "op")}
    return fixed | {
        "threshold": round6(verdict.claim.threshold),
        "unit": verdict.claim.unit,
        "estimate": verdict.estimate,
        "interval": list(verdict.interval),
        "seeds": verdict.seeds,
        "n": verdict.n,
        "expected": verdict.claim.expected,
        "verdict": verdict.verdict,
        "controls": list(verdict.claim.controls),
        "note": verdict.claim.note,
    }


def write_claims(path: Path, notebook: str, preset: str, code_key: str, verdicts: Sequence[Verdict]) -> None:
    """Write claims.json under a temporary name and rename it, so that nobody ever reads half a file.

    Raises:
        ValueError: where two claims have the same id.
        OSError: where the disk refuses; the old file is then untouched.
    """
    document = claims_document(notebook, preset, code_key, verdicts)
    check_claims(document, str(path))
    write_atomic(path, json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_claims(path: Path) -> dict[str, Any]:
    """Read and check a claims.json.

    Raises:
        FileNotFoundError: where there is none.
        ValueError: where it is not JSON or breaks the schema; the message names the file, the claim and the field.
    """
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:  # covers bad JSON and bad UTF-8
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    check_claims(document, str(path))
    return document


class _Record(BaseModel):
    """One claim in the file."""

    model_config = ConfigDict(extra="forbid", strict=True)
    id: str
    statement: str
    endpoint: str
    op: Literal["<", "<=", ">", ">=", "=="]
    threshold: FiniteFloat
    unit: str
    estimate: FiniteFloat
    interval: list[FiniteFloat] = Field(min_length=2, max_length=2)
    seeds: PositiveInt | None
    n: PositiveInt
    expected: Literal["supported", "refuted", "inconclusive"]
    verdict: str
    controls: list[str]
    note: str


class _Document(BaseModel):
    """The file."""

    model_config = ConfigDict(extra="forbid", strict=True)
    notebook: str
    preset: str
    code_key: str
    claims: list[_Record]


def check_claims(document: Any, where: str = "claims.json") -> None:
    """Check a claims document against the schema, and each verdict against its own numbers.

    Raises:
        ValueError: with the file, the claim and the field.
    """
    try:
        claims = _Document.model_validate(document).claims
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{where}: {field or 'the file'}: {first['msg']} (found {first['input']!r}).") from None
    for number, claim in enumerate(claims):
        problem = _problem(claim) or ("the id is taken" if claim.id in [c.id for c in claims[:number]] else "")
        if problem:
            raise ValueError(f"{where}: claim {claim.id!r}: {problem}.")


def _problem(claim: _Record) -> str:
    lo, hi = claim.interval
    if not lo <= claim.estimate <= hi:
        return f"the estimate {claim.estimate} is outside its interval [{lo}, {hi}]"
    if plain(claim.verdict) not in VERDICTS:
        return f"unknown verdict {claim.verdict!r}"
    if claim.seeds is not None and (claim.seeds < ENOUGH_SEEDS) != claim.verdict.startswith(PRELIMINARY):
        return f"{claim.verdict!r} does not fit {claim.seeds} seeds"
    follows = {decide(claim.op, claim.threshold, lo, hi)} | ({"inconclusive"} if claim.n == 1 else set())
    if claim.op != "==" and plain(claim.verdict) not in follows:  # the tolerance of == is not in the file
        return f"{claim.verdict!r} does not follow from {claim.op} {claim.threshold} and [{lo}, {hi}]"
    return ""


@dataclass(frozen=True)
class Change:
    """One claim in two claims files."""

    id: str
    committed: str
    """The old verdict, "none" for a new claim."""
    new: str
    """The new verdict, "none" for a claim that is gone."""
    drift: float | None
    """|new - old estimate| in units of half the old interval's width; None where a side lacks the claim or a width."""

    @property
    def changed(self) -> bool:
        """Whether the verdict, "preliminary" aside, is another one.

        Few seeds that do not decide are no other verdict: a preliminary "inconclusive" changes nothing.
        """
        if self.new == PRELIMINARY + "inconclusive":
            return False
        return plain(self.committed) != plain(self.new)


def compare_claims(committed: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """Claim by claim, in the order of the new document: verdicts and drift."""
    old_claims = {claim["id"]: claim for claim in committed["claims"]}
    new_claims = {claim["id"]: claim for claim in new["claims"]}
    changes = []
    for claim_id in [*new_claims, *(name for name in old_claims if name not in new_claims)]:
        old, fresh = old_claims.get(claim_id), new_claims.get(claim_id)
        before, after = (claim["verdict"] if claim else "none" for claim in (old, fresh))
        changes.append(Change(claim_id, before, after, _drift(old, fresh) if old and fresh else None))
    return changes


def _drift(old: Mapping[str, Any], new: Mapping[str, Any]) -> float | None:
    moved, half = abs(new["estimate"] - old["estimate"]), (old["interval"][1] - old["interval"][0]) / 2
    if half == 0:
        return 0.0 if moved == 0 else None
    return round6(moved / half)
