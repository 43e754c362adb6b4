"""What a measurement returns, as files: data frames as CSV, arrays as npz, the rest as JSON; never a pickle."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

TYPES = "types.json"
SUFFIX = {"frame": "csv", "arrays": "npz", "json": "json"}


def encode(value: Any) -> tuple[str, dict[str, bytes]]:
    """(kind, files): kind is "frame", "arrays" or "json".

    Raises:
        TypeError: the value is none of these; the message says what can be returned.
    """
    import pandas as pd

    if isinstance(value, pd.DataFrame):
        content, types = frame_files(value)
        return "frame", {"value.csv": content, TYPES: json.dumps(types).encode("utf-8")}
    if isinstance(value, Mapping) and value and all(hasattr(item, "__array__") for item in value.values()):
        return "arrays", {"value.npz": _npz({str(name): np.asarray(item) for name, item in value.items()})}
    try:
        text = json.dumps(_plain(value), ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise TypeError(
            "A measure function returns a DataFrame, a dict of arrays, or numbers and texts in lists and dicts: "
            f"{type(value).__name__} ({error})."
        ) from None
    return "json", {"value.json": text.encode("utf-8")}


def decode(kind: str, files: Mapping[str, bytes]) -> Any:
    """What `encode` was given, up to tuples (lists) and numpy numbers (Python's)."""
    if kind == "frame":
        return read_frame(files["value.csv"], json.loads(files[TYPES]))
    if kind == "arrays":
        with np.load(io.BytesIO(files["value.npz"]), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    return json.loads(files["value.json"])


def frame_files(frame: pd.DataFrame) -> tuple[bytes, dict[str, str]]:
    """A data frame as CSV, with the type of each column.

    Raises:
        TypeError: an index or columns that CSV does not keep.
    """
    if list(frame.index) != list(range(len(frame))) or frame.columns.nlevels > 1:
        raise TypeError("A measured DataFrame has a plain index 0, 1, ... and plain columns: call reset_index() first.")
    if bad := [name for name in frame.columns if not isinstance(name, str)]:
        raise TypeError(f"A measured DataFrame has texts for column names, not {bad[0]!r}.")
    types = {str(name): str(kind) for name, kind in frame.dtypes.items()}
    return frame.to_csv(index=False, lineterminator="\n").encode("utf-8"), types


def read_frame(content: bytes, types: Mapping[str, str]) -> pd.DataFrame:
    """Every column by its type; Python's own `float` gives back each digit. A missing text becomes an empty one."""
    import pandas as pd

    table = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)
    return pd.DataFrame({name: _column(table[name].tolist(), kind) for name, kind in types.items()})


def _column(texts: list[str], kind: str) -> Any:
    import pandas as pd

    if kind.startswith("float"):
        return np.array([float(text or "nan") for text in texts], dtype=kind)
    if kind == "bool":
        return np.array([text == "True" for text in texts])
    return pd.Series(texts, dtype=object if kind == "object" else "str").astype(kind)  # type: ignore[call-overload]


def _npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The same bytes for the same arrays: zip entries carry a fixed date."""
    if objects := [name for name, array in arrays.items() if array.dtype.hasobject]:
        raise TypeError(f"Array {objects[0]!r} holds Python objects; only numbers, booleans and texts can be kept.")
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)  # type: ignore[arg-type]  # names that are no keyword of savez
    return out.getvalue()


def _plain(value: Any) -> Any:
    """Numpy's numbers and arrays as Python's, so that JSON takes them."""
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value
