"""The conformance kit: what an adapter declares, and what it is checked for.

Names are loaded when they are asked for: `ConformanceSuite` needs pytest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._adapter import Adapter, Options
    from ._capabilities import Capability
    from ._checks import Check, NotConformingError, assert_adapter_conforms, checks, run_check
    from ._table import load_adapters
    from .testing import ConformanceSuite

__all__ = [
    "Adapter",
    "Capability",
    "Check",
    "ConformanceSuite",
    "NotConformingError",
    "Options",
    "assert_adapter_conforms",
    "checks",
    "load_adapters",
    "run_check",
]

_WHERE = {
    "Adapter": "_adapter",
    "Options": "_adapter",
    "Capability": "_capabilities",
    "Check": "_checks",
    "NotConformingError": "_checks",
    "assert_adapter_conforms": "_checks",
    "checks": "_checks",
    "run_check": "_checks",
    "ConformanceSuite": "testing",
    "load_adapters": "_table",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
