"""Recovery of a run from another one: what succeeded there is taken over, and not run again.

`flyte rerun RUN --recover` makes a new run whose spec names the other one. An action's name is made of its parent's name, its
task's code and its inputs, and of no run's name, so what the new run asks for is found in the other by its name.
"""

from __future__ import annotations

import time
from dataclasses import replace

from flyteidl2.common import run_pb2 as common_run_pb2
from flyteidl2.task import run_pb2

from ._layout import Layout
from ._store import RECOVERED, ROOT, SUCCEEDED, Action, ActionKey, Store


class Recovery:
    """Looks up what a run takes over.

    Args:
        store: the state.
        layout: the data folder.
    """

    def __init__(self, store: Store, layout: Layout) -> None:
        self._store = store
        self._layout = layout

    def task(self, asked: Action) -> Action | None:
        """A task action as it is taken over, with the outputs where they are.

        Args:
            asked: the action that the new run asks for.

        Returns:
            `None` where the run recovers none, the other has not finished this action, its outputs are gone, or the caller
            wants it to be run again. A root runs in any case.
        """
        source = self._source(asked.run)
        if source is None or asked.name == ROOT:
            return None
        run, forced = source
        found = self._store.action(ActionKey(run, asked.name))
        if found is None or found.kind != "task" or found.phase not in (SUCCEEDED, RECOVERED) or asked.name in forced:
            return None
        if not (self._layout.path(found.output_uri) / "outputs.pb").exists():
            return None
        now = time.time()
        return replace(asked, phase=RECOVERED, output_uri=found.output_uri, started=now, ended=now)

    def traces(self, parent: ActionKey) -> list[Action]:
        """The traces that the other run has recorded for an action of the same name, as traces of this one.

        Those that the new run has recorded itself are left out.
        """
        source = self._source(parent.run)
        if source is None:
            return []
        run, forced = source
        return [
            replace(trace, run=parent.run)
            for trace in self._store.children(ActionKey(run, parent.name))
            if trace.kind == "trace"
            and trace.name not in forced
            and self._store.action(ActionKey(parent.run, trace.name)) is None
        ]

    def _source(self, name: str) -> tuple[str, frozenset[str]] | None:
        """The run that a run recovers, and the actions that are to run again all the same."""
        run = self._store.run(name)
        if run is None:
            return None
        spec = run_pb2.RunSpec.FromString(run.spec)
        if spec.relation.relation_type != common_run_pb2.RELATION_TYPE_RECOVER:
            return None
        return spec.relation.related_to.name, frozenset(spec.recover.force_rerun_actions)
