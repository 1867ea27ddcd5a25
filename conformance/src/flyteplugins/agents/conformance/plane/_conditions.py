"""Conditions: wait for a signal, check it, give up at the deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from flyteidl2.common import identity_pb2
from flyteidl2.core import literals_pb2, types_pb2
from flyteidl2.workflow import run_definition_pb2

from ._store import PAUSED, SUCCEEDED, TIMED_OUT, Action, ActionKey, Store

_TYPE_OF: Final = {
    "boolean": types_pb2.BOOLEAN,
    "integer": types_pb2.INTEGER,
    "float_value": types_pb2.FLOAT,
    "string_value": types_pb2.STRING,
}


class Conditions:
    """The conditions that are waited for.

    Args:
        store: the state.
        changed: called when a condition reached its final phase.
    """

    def __init__(self, store: Store, changed: Callable[[], None]) -> None:
        self._store = store
        self._changed = changed

    def check(self, spec: run_definition_pb2.ConditionAction) -> None:
        """Refuse a condition of a type that cannot be signalled.

        Raises:
            ConnectError: `INVALID_ARGUMENT`.
        """
        if spec.type.simple not in _TYPE_OF.values():
            raise ConnectError(
                Code.INVALID_ARGUMENT,
                f"Condition {spec.name!r} has type {_name(spec.type.simple)}: it must be a bool, int, float or str.",
            )

    def deadline(self, spec: run_definition_pb2.ConditionAction, created: float) -> float:
        """When a condition times out, in seconds since the epoch; 0 for never. Counted from its creation."""
        timeout = spec.timeout.ToTimedelta().total_seconds()
        return created + timeout if timeout else 0.0

    def arm(self, condition: Action) -> None:
        """Have a condition time out at its deadline."""
        if condition.deadline:
            wait = max(0.0, condition.deadline - time.time())
            asyncio.get_running_loop().call_later(wait, self._expire, condition.key, condition.created)

    def recover(self) -> None:
        """Arm the conditions that an earlier plane left."""
        for action in self._store.unfinished():
            if action.kind == "condition" and action.phase == PAUSED:
                self.arm(action)

    def _expire(self, key: ActionKey, created: float) -> None:
        condition = self._store.action(key)
        if condition is None or condition.created != created:  # forgotten, and asked for again
            return
        if self._store.update(key, phase=TIMED_OUT, ended=time.time()) is not None:
            self._changed()

    def signal(self, condition: Action, value: literals_pb2.Literal, by: identity_pb2.EnrichedIdentity) -> None:
        """Signal a condition. The same value once more changes nothing.

        Args:
            condition: which.
            value: the literal to give to whoever waits.
            by: who signals.

        Raises:
            ConnectError: `INVALID_ARGUMENT`, the value is not of the condition's type; `FAILED_PRECONDITION`, the
                action is no condition, or was signalled with another value, or is over.
        """
        where = f"{condition.run}/{condition.name}"
        if condition.kind != "condition":
            raise ConnectError(
                Code.FAILED_PRECONDITION, f"{where} is a {condition.kind}: only conditions take a signal."
            )
        given = _TYPE_OF.get(value.scalar.primitive.WhichOneof("value") or "")
        wanted = run_definition_pb2.ConditionAction.FromString(condition.spec).type.simple
        if given != wanted:
            raise ConnectError(
                Code.INVALID_ARGUMENT,
                f"{where} waits for {_name(wanted)} and was signalled with {_name(given) if given else 'nothing'}.",
            )
        raw = value.SerializeToString(deterministic=True)
        if condition.value:
            if condition.value == raw:
                return
            raise ConnectError(Code.FAILED_PRECONDITION, f"{where} was signalled already, with another value.")
        done = self._store.update(
            condition.key, phase=SUCCEEDED, value=raw, by=by.SerializeToString(), ended=time.time()
        )
        if done is None:
            raise ConnectError(Code.FAILED_PRECONDITION, f"{where} is over: it timed out or was aborted.")
        self._changed()


def _name(simple: types_pb2.SimpleType) -> str:
    return types_pb2.SimpleType.Name(simple)
