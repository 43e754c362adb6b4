"""Whoever read the progress has gone: nothing of the run is lost for that."""

from __future__ import annotations

import os

from rlkit.notebooks.progress import Watch
from rlkit.runs.progress import Progress


def test_progress_into_a_closed_pipe_is_dropped() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb", buffering=0) as raw:
        import io

        stream = io.TextIOWrapper(raw, write_through=True)
        with Progress(4, 2, "runs", "lines", stream) as bar:
            bar.tell("failed: one")
            bar.update(4, 2)
        assert bar.finished == 2
        Watch("demo", 3, stream=stream).end("done")
        stream.detach()
