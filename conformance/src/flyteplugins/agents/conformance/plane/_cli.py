"""The command line of the plane."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from flyteplugins.agents.conformance.faults import FaultPoint

from .modes import Drop, Modes
from .server import PlaneError, Settings, serve


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: arguments; those of the process by default.

    Returns:
        The exit code.
    """
    options = _parser().parse_args(argv)
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s")
    try:
        settings = Settings(
            data=options.data,
            host=options.host,
            port=options.port,
            slots=options.slots,
            abort_grace=options.abort_grace,
            binaries=options.bin,
            preload=tuple(options.preload),
            fork_servers=tuple(options.fork_server),
            modes=_modes(options),
        )
        serve(settings, ready=_tell)
    except (PlaneError, ValueError) as e:
        print(e, file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m flyteplugins.agents.conformance.plane",
        description="A Flyte control plane on one machine, for tests and demonstrations. A cluster is Flyte.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_up(commands.add_parser("up", help="serve a plane until it is told to stop"))
    return parser


def _add_up(up: argparse.ArgumentParser) -> None:
    up.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder for everything; made if missing")
    up.add_argument("--port", type=int, default=8090, metavar="N", help="port to listen on, 0 for any (8090)")
    up.add_argument("--host", default="127.0.0.1", help="loopback address to listen on (127.0.0.1)")
    up.add_argument("--slots", type=int, default=4, metavar="N", help="workers that compute at once (4)")
    up.add_argument(
        "--abort-grace",
        type=float,
        default=2.0,
        metavar="S",
        help="seconds an aborted worker goes on (2; a cluster's 30)",
    )
    up.add_argument(
        "--bin",
        type=Path,
        default=Path(sys.executable).parent,
        metavar="DIR",
        help="folder with the a0 that runs tasks",
    )
    up.add_argument(
        "--preload",
        action="append",
        default=[],
        metavar="MODULE",
        help="import a module once, and fork the workers from there; it must not start threads",
    )
    up.add_argument(
        "--fork-server",
        action="append",
        default=[],
        type=Path,
        metavar="SOCKET",
        help="fork the workers from a server that others use as well, in place of --preload; several take turns",
    )
    up.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    modes = up.add_argument_group("modes")
    modes.add_argument("--serve-traces", action="store_true", help="answer a retry's recorded traces")
    modes.add_argument(
        "--forget-children-after", type=float, metavar="S", help="forget finished children after S seconds"
    )
    modes.add_argument(
        "--snapshot-delay", type=float, default=0.0, metavar="S", help="tell a parent of its children late"
    )
    modes.add_argument(
        "--drop",
        action="append",
        default=[],
        metavar="SERVICE/METHOD[@N][:request|response]",
        help="lose the N-th call",
    )
    modes.add_argument(
        "--faults", metavar="POINT@N,...", help="kill a worker at the N-th time a run reaches a fault point"
    )

    modes.add_argument(
        "--cold-workers", action="store_true", help="start each worker from nothing, whatever is preloaded"
    )
    modes.add_argument(
        "--fault-point",
        action="append",
        default=[],
        metavar="NAME=MODULE:FUNCTION[:after]",
        help="make a function a fault point",
    )


def _modes(options: argparse.Namespace) -> Modes:
    return Modes(
        serve_traces=options.serve_traces,
        forget_children_after=options.forget_children_after,
        snapshot_delay=options.snapshot_delay,
        drop=tuple(Drop.parse(text) for text in options.drop),
        faults=options.faults,
        warm_workers=not options.cold_workers,
        fault_points=tuple(FaultPoint.parse(text) for text in options.fault_point),
    )


def _tell(endpoint: str, config: Path) -> None:
    print(
        f"Flyte plane on {endpoint}, data in {config.parent}\n"
        f"  flyte --config {config} run FILE TASK --ARGUMENT VALUE\n"
        f"or: export FLYTECTL_CONFIG={config}",
        flush=True,
    )
