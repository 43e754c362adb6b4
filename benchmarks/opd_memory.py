"""Memory of a distillation loss: dense, TRL's kernel, and the loss over kept rows with the scoring pass before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.readme import Report, about
from rlkit import loss_memory

if TYPE_CHECKING:
    from torch import Tensor

SIZES = ((1024, 32_768), (512, 151_936))
"""(tokens, vocabulary)."""
OURS, WANTED = "scored, then kept rows", 0.25


def scored_then_kept(student: Tensor, head: Tensor, teacher: Tensor, teachers_head: Tensor, kept: Tensor) -> Tensor:
    """The whole of it: scores of all tokens without gradient, as selection needs them, then the loss."""
    import torch

    from rlkit.trainers.heads import Head, chunks
    from rlkit.trainers.scoring import measure

    mine, theirs = Head(head, None), Head(teachers_head, None)
    tokens = torch.zeros(len(student), dtype=torch.long)
    with torch.no_grad():
        for part in chunks(len(student), len(head), student.device):
            measure(mine.project(student[part]), theirs.project(teacher[part]), tokens[part], forward=False)
    return loss_memory.kept_rows(student, head, teacher, teachers_head, kept)


def measured(tokens: int, vocabulary: int) -> list[dict[str, Any]]:
    """One row a loss and retention."""
    loss_memory.LOSSES[OURS] = scored_then_kept
    size = {"tokens": tokens, "vocabulary": vocabulary}
    whole = loss_memory.loss_memory(("dense", "TRL's kernel"), (1.0,), **size)
    ours = loss_memory.loss_memory((OURS,), (1.0, 0.5, 0.2, 0.1), **size)
    rows = [{**size, **row} for frame in (whole, ours) for row in frame.to_dict("records")]
    for row in rows:
        row["to dense"], row["to TRL's"] = (row["peak"] / rows[i]["peak"] for i in (0, 1))
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown."""
    columns = ["tokens x vocabulary", "loss", "kept", "retained", "peak", "peak to dense", "peak to TRL's", "wanted"]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row in rows:
        wanted = f"at most {WANTED} of both" if row["loss"] == OURS and row["retention"] == 0.1 else ""
        cells = [f"{row['tokens']:,} x {row['vocabulary']:,}", row["loss"], f"{row['retention']:.0%}"]
        cells += [f"{row[name]:.3f}" for name in ("retained", "peak", "to dense", "to TRL's")]
        lines.append(f"| {' | '.join([*cells, wanted])} |")
    how = f"Bytes per token and vocabulary entry; 32-bit floats on a CPU, heads frozen; {about()}."
    return "\n".join([*lines, "", how])


def report(quick: bool) -> Report:
    """Measure every size; bytes are counted, so that there is nothing to repeat."""
    rows = [row for size in (SIZES[:1] if quick else SIZES) for row in measured(*size)]
    best = next(row["to TRL's"] for row in rows if row["loss"] == OURS and row["retention"] == 0.1)
    summary = [("peak memory of a distillation loss, 10 % of tokens kept, to TRL's kernel", f"{best:.2f}")]
    return Report(table(rows), summary)
