"""Work on what adapters declare.

python -m flyteplugins.agents.conformance.kit table README.md plugins/*/tests/test_conformance.py --write
python -m flyteplugins.agents.conformance.kit golden plugins/openai/tests/test_conformance.py
python -m flyteplugins.agents.conformance.kit check plugins/openai/tests/test_conformance.py
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from ._checks import NotConformingError, assert_adapter_conforms
from ._golden import golden_file, record_golden, write_golden
from ._stage import open_stage
from ._table import capability_table, load_adapters, with_table


def main(argv: list[str] | None = None) -> int:
    """Read the command line, and do what it says."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    table = commands.add_parser("table", help="compare a page's capability table with the declarations")
    table.add_argument("page", type=Path)
    table.add_argument("--write", action="store_true", help="rewrite the table")
    golden = commands.add_parser("golden", help="record golden records with the installed SDK")
    check = commands.add_parser("check", help="make every check")
    for command in (table, golden, check):
        command.add_argument("files", type=Path, nargs="+", help="files with declarations")
    options = parser.parse_args(argv)
    adapters = load_adapters(options.files)
    if options.command == "table":
        text = options.page.read_text()
        wanted = with_table(text, capability_table(adapters))
        if options.write:
            options.page.write_text(wanted)
        elif text != wanted:
            print(f"The table in {options.page} is not what the adapters declare. Add --write to rewrite it.")
            return 1
        return 0
    for adapter in adapters:
        if options.command == "golden":
            file = golden_file(adapter)
            if file is None:
                print(f"{adapter.title} declares no folder for golden records.")
                return 1
            with open_stage(adapter) as stage:
                write_golden(asyncio.run(record_golden(stage)), file)
            print(file)
            continue
        try:
            assert_adapter_conforms(adapter)
        except NotConformingError as error:
            print(error)
            return 1
        print(f"{adapter.title} conforms.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
