"""What names a machine class."""

from __future__ import annotations

import json

import torch

from rlkit.machine import machine_class


def test_machine_class_is_complete_and_travels_as_json() -> None:
    found = machine_class()
    assert set(found) == {"system", "machine", "vendor", "capability", "torch"}
    assert all(found.values())
    assert "+" not in found["torch"]
    assert torch.__version__.startswith(found["torch"])
    assert json.loads(json.dumps(found)) == found == machine_class()
