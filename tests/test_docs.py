"""What the pages show works: programs run, commands are Flyte's, links lead somewhere. A snippet that nobody runs is noticed.

How a page says what is to be done with a block of code, on the line before it:

- A Python block that begins with `# name.py` is a program. The page has to have a command that runs it.
- `<!-- run: name.py -->`, and `<!-- run, twice: name.py -->` where the second run asks the model nothing.
- `<!-- run in the checkout -->`: the command is run as it is, where `./plugins` is.
- `<!-- fragment -->`: a part of a program, which is compiled; what it imports and calls has to exist.

Other commands are looked up, word by word: programs, subcommands and options have to exist. Any other block fails the tests.
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import re
import shlex
import subprocess
import sys
import textwrap
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import click
import pytest
from flyte.cli.main import main as flyte_cli

from flyteplugins.agents.conformance.local import LocalRuns, SharedForkServer
from flyteplugins.agents.conformance.models import ModelServer
from flyteplugins.agents.core import V0_FILES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("plugins/*/README.md"))]
LINKED = [*PAGES, *sorted(ROOT.glob("conformance/*.md")), *sorted(ROOT.glob("conformance/src/**/*.md"))]
PRINTED = {"tour"}
"""What blocks without a language show: what a command prints, which another test compares."""


@dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
        page: The page that it is on.
        line: The line on which it begins.
        language: What the page calls it.
        directive: The comment on the line before it.
        text: The code.
    """

    page: Path
    line: int
    language: str
    directive: str
    text: str

    def __str__(self) -> str:
        return f"{name_of(self.page)}:{self.line}"

    @property
    def program(self) -> str:
        """The name of the program that it is, if it is one."""
        found = re.match(r"# (\w+\.py)\n", self.text)
        return found[1] if self.language == "python" and found else ""

    @property
    def runs(self) -> tuple[str, int]:
        """The program that its command runs, and how often; an empty name for none."""
        found = re.fullmatch(r"run(, twice)?: (\w+\.py)", self.directive)
        return (found[2], 2 if found[1] else 1) if found else ("", 0)

    @property
    def commands(self) -> list[str]:
        """The commands, without comments."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [line for line in (re.sub(r"\s+# .*|^#.*", "", line).strip() for line in lines) if line]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else page.name


def blocks(page: Path) -> list[Block]:
    """All blocks of code of a page."""
    found = []
    lines = page.read_text().split("\n")
    number = 0
    while number < len(lines):
        if not lines[number].lstrip().startswith("```"):
            number += 1
            continue
        comment = re.fullmatch(r"\s*<!-- (.*) -->\s*", lines[number - 1]) if number else None
        end = next(at for at in range(number + 1, len(lines)) if lines[at].strip() == "```")
        text = textwrap.dedent("\n".join(lines[number + 1 : end]) + "\n")
        language = lines[number].strip().removeprefix("```")
        found.append(Block(page, number + 1, language, comment[1] if comment else "", text))
        number = end + 1
    return found


BLOCKS = [block for page in PAGES for block in blocks(page)]
SHELL = [block for block in BLOCKS if block.language == "sh"]
RUNS = [block for block in SHELL if block.runs[0]]


def programs(page: Path) -> dict[str, str]:
    return {block.program: block.text for block in blocks(page) if block.program}


# what is done with each block


def problems(page: Path) -> list[str]:
    """Why blocks of a page are neither run nor looked at."""
    found = []
    here = blocks(page)
    run = {block.runs[0] for block in here}
    for block in here:
        if block.language == "python":
            if block.program and block.program not in run:
                found.append(f"{block}: no `<!-- run: {block.program} -->` runs the program")
            if not block.program and block.directive != "fragment":
                found.append(f"{block}: begin a program with `# name.py`, or say `<!-- fragment -->` before it")
        elif block.language == "sh":
            if block.directive not in ("", "run in the checkout") and not block.runs[0]:
                found.append(f"{block}: nobody knows what {block.directive!r} means")
            if block.runs[0] and block.runs[0] not in programs(page):
                found.append(f"{block}: there is no program {block.runs[0]} on the page")
        elif block.language or block.directive not in PRINTED:
            found.append(f"{block}: call it `python` or `sh`, or have a test compare what it shows")
    return found


def test_there_are_pages_and_programs_and_commands() -> None:
    assert {"README.md", "docs/cluster.md", "plugins/openai/README.md"} <= {name_of(page) for page in PAGES}
    assert len(RUNS) >= 15
    assert {name_of(block.page) for block in RUNS} >= {f"plugins/{path.parent.name}/README.md" for path in ADAPTERS}


ADAPTERS = [path for path in ROOT.glob("plugins/*/README.md") if path.parent.name != "core"]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_block_of_code_is_left_alone(page: Path) -> None:
    assert problems(page) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```python\n# a.py\nprint()\n```", "no `<!-- run: a.py -->` runs the program"),
        ("```python\nprint()\n```", "begin a program with `# name.py`"),
        ("<!-- later -->\n```sh\nflyte get run\n```", "nobody knows what 'later' means"),
        ("<!-- run: b.py -->\n```sh\nflyte run --local b.py chat\n```", "there is no program b.py"),
        ("```\nflyte get run\n```", "call it `python` or `sh`"),
        ("```bash\nflyte get run\n```", "call it `python` or `sh`"),
    ],
)
def test_a_block_that_nobody_runs_is_noticed(tmp_path: Path, text: str, problem: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{text}\n")
    [found] = problems(page)
    assert problem in found


# programs


@pytest.mark.parametrize("block", RUNS, ids=str)
def test_a_program_runs_with_its_command(
    any_sdk: tuple[SharedForkServer, ...],
    home: Path,
    model_server: ModelServer,
    tmp_path: Path,
    run_name: str,
    block: Block,
) -> None:
    name, times = block.runs
    source = programs(block.page)[name]
    file = tmp_path / name
    file.write_text(source)
    [command] = block.commands
    words = shlex.split(command)
    assert words[:3] == ["flyte", "run", "--local"]
    at = words.index(name)
    inputs = dict(zip((word.removeprefix("--") for word in words[at + 2 :: 2]), words[at + 3 :: 2], strict=True))
    runs = LocalRuns(home, model_server.env(), any_sdk)
    asked = []
    try:
        for _ in range(times):
            outcome = runs.run(file, words[at + 1], name=run_name, inputs=inputs)
            assert outcome.succeeded, outcome.output
            asked.append(model_server.journal.count())
    finally:
        runs.remove()
    is_a_tool = "@tool" in source.partition(f"def {words[at + 1]}(")[0].rpartition("\n\n")[2]
    assert (asked[0] > 0) is not is_a_tool
    assert asked == [asked[0]] * times, "the second run asks nothing"


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.directive == "fragment"], ids=str)
def test_a_fragment_imports_and_calls_what_exists(block: Block) -> None:
    tree = ast.parse(f"async def fragment():\n{textwrap.indent(block.text, '    ')}")
    adapter = block.page.parent.name
    module = importlib.import_module(f"flyteplugins.agents.{adapter if adapter != 'agents' else 'core'}")
    called = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)
        if isinstance(node, ast.ImportFrom):
            found = importlib.import_module(str(node.module))
            assert [alias.name for alias in node.names if not hasattr(found, alias.name)] == []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in module.__all__:
            called += 1
            parameters = inspect.signature(getattr(module, node.func.id)).parameters
            takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
            given = {keyword.arg for keyword in node.keywords if keyword.arg}
            assert takes_any or given <= set(parameters), f"{block}: {node.func.id} takes no {given - set(parameters)}"
    assert called, f"{block} calls nothing of {module.__name__}"


# commands


@functools.cache
def help_of(module: str, *subcommand: str) -> str:
    argv = [sys.executable, "-m", module, *subcommand, "--help"]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout


def check_flyte(words: list[str], page: Path) -> str:
    """Why Flyte's command line would refuse a command; empty if it would not."""
    command: click.Command = flyte_cli
    context = click.Context(flyte_cli, info_name="flyte")
    words = list(words)
    while words:
        word = words.pop(0)
        if word.startswith("-"):
            given, has_value, _ = word.partition("=")
            option = next((one for one in command.params if given in (*one.opts, *one.secondary_opts)), None)
            if not isinstance(option, click.Option):
                return f"`flyte {command.name}` has no option {given}"
            if not option.is_flag and not has_value:
                words = words[1:]
        elif command.name == "run":
            return check_task(word, words, page)
        elif isinstance(command, click.Group):
            found = command.get_command(context, word)
            if found is None:
                return f"`flyte {command.name}` has no command {word}"
            command = found
        elif not any(isinstance(one, click.Argument) for one in command.params):
            return f"`flyte {command.name}` takes no {word}"
    return ""


def check_task(file: str, words: list[str], page: Path) -> str:
    """Why a program of the page or the checkout does not have a task, or the task no such inputs."""
    source = programs(page).get(file) or ((ROOT / file).read_text() if (ROOT / file).is_file() else "")
    if not source:
        return f"there is no program {file}"
    task, *rest = words
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef) and node.name == task:
            known = {argument.arg for argument in node.args.args}
            given = {word.removeprefix("--") for word in rest[::2]}
            return f"task {task} of {file} has no inputs {given - known}" if given - known else ""
    return f"{file} has no task {task}"


def check(command: str, page: Path) -> str:
    """Why a command cannot be typed; empty if it can."""
    words = shlex.split(command)
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    match words:
        case ["flyte", *rest]:
            return check_flyte(rest, page)
        case ["make", target, *_]:
            return "" if f"\n{target}:" in (ROOT / "Makefile").read_text() else f"there is no target {target}"
        case ["python", "-m", module, *rest]:
            if importlib.util.find_spec(module) is None:
                return f"there is no module {module}"
            own = rest[: rest.index("--")] if "--" in rest else rest
            after = rest[rest.index("--") + 1 :] if "--" in rest else []
            known = help_of(module, *[word for word in own[:1] if not word.startswith("-")])
            unknown = [word for word in own if word.startswith("--") and word not in known]
            if unknown:
                return f"{module} has no {unknown}"
            return check(shlex.join(after), page) if after else ""
        case ["pip", "install" | "wheel", *rest]:
            missing = [word for word in rest if word.startswith("./") and not (ROOT / word.partition("[")[0]).is_dir()]
            return f"there is no {missing}" if missing else ""
        case ["git", "clone", *_] | ["cd", *_] | ["export", *_] | [".", ".venv/bin/activate"]:
            return ""
    return f"nobody knows how to check {words[0] if words else 'nothing'}"


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_a_command_has_the_words_that_its_program_knows(block: Block) -> None:
    assert block.commands
    found = {command: check(command, block.page) for command in block.commands}
    assert {command: problem for command, problem in found.items() if problem} == {}


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("flyte run --locl chat.py chat", "has no option --locl"),
        ("flyte rerun RUN --recovr", "has no option --recovr"),
        ("flyte signal conditions RUN ACTION", "has no command conditions"),
        ("flyte run --local nothing.py chat", "there is no program nothing.py"),
        ("flyte run --local examples/chat.py talk", "has no task talk"),
        ("flyte run --local examples/chat.py chat --text Hi", "has no inputs {'text'}"),
        ("python -m flyteplugins.agents.conformance.plane up --date x", "has no ['--date']"),
        ("python -m flyteplugins.agents.conformance.models -- flyte runs", "has no command runs"),
        ("make tea", "there is no target tea"),
        ("pip install ./plugins/cobol", "there is no ['./plugins/cobol']"),
        ("kubectl get pods", "nobody knows how to check kubectl"),
    ],
)
def test_a_command_that_nobody_could_type_is_noticed(command: str, problem: str) -> None:
    assert problem in check(command, ROOT / "README.md")


@pytest.mark.parametrize("block", [block for block in SHELL if block.directive == "run in the checkout"], ids=str)
def test_a_command_of_the_checkout_runs(block: Block, tmp_path: Path) -> None:
    (tmp_path / "plugins").symlink_to(ROOT / "plugins")
    for command in block.commands:
        words = shlex.split(command)
        assert words[:2] == ["pip", "wheel"]
        # with the build tool that is installed: a container without a network has no other
        argv = [sys.executable, "-m", *words, "--no-build-isolation"]
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    built = sorted(path.name.split("-")[0] for path in (tmp_path / "dist").iterdir())
    assert built == ["flyteplugins_agents_core", "flyteplugins_agents_openai"]


async def test_the_image_of_the_page_about_clusters_copies_the_wheels_and_installs_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flyte._internal.imagebuild.docker_builder import _process_layer

    (tmp_path / "dist").mkdir()
    (tmp_path / "dist" / "one-1-py3-none-any.whl").write_bytes(b"wheel")
    program = tmp_path / "on_a_cluster.py"
    program.write_text(programs(ROOT / "docs" / "cluster.md")[program.name])
    spec = importlib.util.spec_from_file_location(program.stem, program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, program.stem, module)
    spec.loader.exec_module(module)
    dockerfile = ""
    for layer in module.image._layers:
        dockerfile = await _process_layer(layer, tmp_path / "context", dockerfile, [])
    lines = dockerfile.split("\n")
    [copied] = [line for line in lines if line.startswith("COPY")]
    [installed] = [line for line in lines if line.startswith("RUN")]
    assert copied.split()[-1] == "/tmp/dist"
    assert installed.split(maxsplit=1)[1] == "uv pip install --python $UV_PYTHON /tmp/dist/*.whl"
    assert lines.index(copied) < lines.index(installed)
    assert [path.name for path in (tmp_path / "context").rglob("*.whl")] == ["one-1-py3-none-any.whl"]


# links


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", heading).strip().lower()
    kept = (letter for letter in text if letter in " -_" or unicodedata.category(letter)[0] in "LN")
    return "".join(kept).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return {anchor(heading) for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


def dead_links(page: Path) -> list[str]:
    """The relative links of a page that lead nowhere."""
    text = re.sub(r"^\s*```.*?^\s*```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`\n]*`", lambda code: code[0] if "](" not in code[0] else "", text)
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?://|mailto:", link):
            continue
        path, _, place = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (place and (target.suffix != ".md" or place not in anchors(target))):
            dead.append(link)
    return dead


@pytest.mark.parametrize("page", LINKED, ids=name_of)
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    assert dead_links(page) == []
    assert [path for path in re.findall(r"`(examples/\w+\.py)`", page.read_text()) if not (ROOT / path).is_file()] == []


def test_a_link_that_leads_nowhere_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `title`, here\n[a](#a-title-here) [b](#elsewhere) [c](gone.md) [d](page.md#a-title-here)\n")
    assert dead_links(page) == ["#elsewhere", "gone.md"]


def test_each_page_about_something_is_linked_from_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    assert [name_of(page) for page in PAGES[1:] if f"]({name_of(page)})" not in text] == []


def test_each_variable_that_programs_read_is_in_the_guide_and_no_other() -> None:
    sources = [path.read_text() for path in ROOT.glob("plugins/*/src/**/*.py")]
    read = {name for source in sources for name in re.findall(r"FLYTE_AGENTS_[A-Z]+", source)}
    guide = (ROOT / "docs" / "guide.md").read_text().partition("## Variables")[2]
    assert read == set(re.findall(r"^\| `(\w+)`", guide, re.MULTILINE))


def resolves(dotted: str) -> bool:
    """Whether a module, or something in one, has this name."""
    module, _, name = dotted.rpartition(".")
    for path, attribute in ((dotted, ""), (module, name)):
        try:
            found = importlib.import_module(path)
        except ModuleNotFoundError:
            continue
        return not attribute or hasattr(found, attribute)
    return False


def test_the_names_of_2_x_are_here_or_are_not_as_their_page_says() -> None:
    page = (ROOT / "docs" / "coming-from-2.x.md").read_text()
    same, changed = page.partition("## What is to be changed")[::2]
    kept = re.findall(r"^\| `(flyteplugins\.agents\.\w+)`: (.*?) \|", same, re.MULTILINE)
    assert len(kept) == 3
    for module, names in kept:
        assert [name for name in re.findall(r"`(\w+)`", names) if not resolves(f"{module}.{name}")] == []
    rows = re.findall(r"^\| (`flyteplugins.*?) \| (.*?) \|$", changed, re.MULTILINE)
    assert len(rows) == 9
    dotted = r"`(flyteplugins\.agents\.[\w.]+)`"
    for gone, instead in rows:
        assert [name for name in re.findall(dotted, gone) if resolves(name)] == []
        assert [name for name in re.findall(dotted, instead) if not resolves(name)] == []


def test_the_files_of_2_x_that_are_read_are_those_of_the_page() -> None:
    memories = (ROOT / "docs" / "coming-from-2.x.md").read_text().partition("## Memories")[2]
    read, _, unread = memories.partition("These are read:")[2].partition("Not read is")
    known = {path for paths in V0_FILES.values() for path in paths}
    assert {*re.findall(r"`([\w/]+(?:\.json)?)`", read), "langgraph/history.json"} == known
    assert "`langgraph/history.json`" in unread
