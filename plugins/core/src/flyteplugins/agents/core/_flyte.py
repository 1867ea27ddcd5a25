"""Flyte's task classes, from where they are defined.

`flyte.extend` has them as well, and imports the builder of images and all type transformers with them, which takes longer than
everything of ours together. The one place that reaches past it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flyte.extend import AsyncFunctionTaskTemplate, TaskTemplate
else:
    try:
        from flyte._task import AsyncFunctionTaskTemplate, TaskTemplate
    except ImportError:  # another version of Flyte
        from flyte.extend import AsyncFunctionTaskTemplate, TaskTemplate

__all__ = ["AsyncFunctionTaskTemplate", "TaskTemplate"]
