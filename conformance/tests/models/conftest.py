from __future__ import annotations

from flyteplugins.agents.conformance.models.testing import model_env, model_server, model_server_process

__all__ = ["model_env", "model_server", "model_server_process"]
