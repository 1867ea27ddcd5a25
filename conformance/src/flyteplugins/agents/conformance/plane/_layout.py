"""Where things are in the data folder, and that nothing is outside it."""

from __future__ import annotations

from pathlib import Path


class OutsideDataFolderError(ValueError):
    """A path that someone asked for is not in the plane's data folder."""


class Layout:
    """The data folder of one plane.

    Everything that the plane and its workers write is below it: state, inputs, outputs, logs, code bundles, the
    workers' home and temporary folders.

    Args:
        data: the folder; made if it is missing.
    """

    def __init__(self, data: Path) -> None:
        data.mkdir(parents=True, exist_ok=True)
        self.data = data.resolve()
        self.database = self.data / "plane.db"
        self.lock = self.data / "plane.lock"
        self.config = self.data / "config.yaml"
        self.rpc_log = self.data / "rpc.log"
        self.runs = self.data / "runs"
        self.uploads = self.data / "uploads"
        self.work = self.data / "work"
        self.home = self.data / "home"
        self.faults = self.data / "faults"
        self.home.mkdir(exist_ok=True)

    def path(self, uri: str) -> Path:
        """The file behind a URI.

        Args:
            uri: an absolute path, or `file://` and an absolute path.

        Raises:
            OutsideDataFolderError: it is anything else, or outside the data folder once links are followed.
        """
        path = Path(uri.removeprefix("file://"))
        if not path.is_absolute() or not path.resolve().is_relative_to(self.data):
            raise OutsideDataFolderError(f"{uri!r} is not in the plane's data folder {self.data}.")
        return path

    def attempt(self, run_base: str, action: str, attempt: int) -> Path:
        """The outputs folder of an attempt, `<run base>/<action>/<attempt>`, as on a cluster."""
        return self.path(run_base) / action / str(attempt)

    def raw_data(self, prefix: str, run: str, action: str, attempt: int) -> Path:
        """The folder for what an attempt offloads.

        Below `rd/` and one segment, the layout from which `flyte.ai.agents.memory` finds the root that runs share.
        """
        return self.path(prefix or str(self.data)) / "rd" / f"{run}-{action}-{attempt}"
