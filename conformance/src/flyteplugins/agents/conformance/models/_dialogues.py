"""The stock dialogues: what a newcomer's agent, an example or a benchmark can talk about without a script.

Each is a pure function of the conversation, so any number of agents can hold the same one at the same time, and a run
that is started again continues where it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ._conversation import Conversation, OfferedTool
from ._fill import fill
from ._reply import Reply, ToolCall


@dataclass(frozen=True)
class Dialogue:
    """Something that the offline model can talk about.

    Args:
        name: Its name in the journal.
        example: A prompt that starts it.
        answer: Returns the next reply, or `None` when the conversation is about something else.
    """

    name: str
    example: str
    answer: Callable[[Conversation], Reply | None]


def _weather(conversation: Conversation) -> Reply | None:
    if not re.search(r"\bweather\b", conversation.user, re.IGNORECASE) or _is_trip(conversation):
        return None
    cities = places(conversation.user)
    tool = find_tool(conversation, "weather")
    if not cities:
        return Reply("Which city do you mean? Ask me, for example: What is the weather in Paris?")
    if tool is None:
        return _delegated(conversation) or Reply(f"I have no weather tool here, so I cannot look up {_join(cities)}.")
    told = [text for name, text in pairs(conversation) if name == tool.name]
    if todo := cities[len(told) :]:
        return Reply(calls=tuple(call_tool(tool, city=c, location=c, place=c) for c in todo))
    return Reply("Here is the weather. " + " ".join(f"{c}: {t}." for c, t in zip(cities, told, strict=False)))


def _delegated(conversation: Conversation) -> Reply | None:
    """What a deep agent does with a question: hand it to a sub-agent, and keep the answer where it was told to."""
    task, write = conversation.tool("task"), conversation.tool("write_file")
    if task is None or "subagent_type" not in _properties(task):
        return None
    told = [text for name, text in pairs(conversation) if name == task.name]
    if not told:
        known = re.findall(r"^\s*- ([\w-]+):(.*)", task.description, re.MULTILINE)
        named = [name for name, about in known if "weather" in f"{name} {about}".lower()]
        who = (named or [name for name, _ in known] or ["general-purpose"])[0]
        return Reply(calls=(ToolCall(task.name, {"description": conversation.user, "subagent_type": who}),))
    file = re.search(r"\bin (/[\w-]+\.md)\b", conversation.system)
    if file and write is not None and not any(call.name == write.name for call in conversation.calls):
        return Reply(calls=(ToolCall(write.name, {"file_path": file[1], "content": told[-1]}),))
    return Reply(told[-1])


def _warmest(conversation: Conversation) -> Reply | None:
    if not re.search(r"\bwarmest\b", conversation.user, re.IGNORECASE):
        return None
    told = re.findall(r"(-?\d+) °C in ([^\W\d_a-z][\w'-]*)", conversation.user)
    if not told:
        return None
    degrees, city = max(told, key=lambda one: int(one[0]))
    return Reply(f"{city} is the warmest, at {degrees} °C.")


def _names(conversation: Conversation) -> Reply | None:
    if re.search(r"\b(what('s| is) my name|who am I)\b", conversation.user, re.IGNORECASE):
        said = [m[1] for text in conversation.users if (m := _INTRODUCTION.search(text))]
        return Reply(f"Your name is {said[-1]}." if said else "You have not told me your name yet.")
    if match := _INTRODUCTION.search(conversation.user):
        return Reply(f"Nice to meet you, {match[1]}!")
    return None


_INTRODUCTION = re.compile(r"\b(?:[Mm]y name is|I am called|[Cc]all me)\s+([^\W\d_][\w'-]*)")


def _sum(conversation: Conversation) -> Reply | None:
    text = conversation.user
    numbers = [_number(n) for n in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", text)]
    if len(numbers) < 2 or not re.search(r"\+|\b(add|sum|plus|total of)\b", text, re.IGNORECASE):
        return None
    question = " + ".join(map(str, numbers))
    tool = conversation.tool("add")
    if tool is None:
        return Reply(f"{question} = {_number(str(sum(numbers)))}")
    told = conversation.result_of("add")
    done = len(told)
    if done < len(numbers) - 1:
        so_far = _first_number(told[-1]) if told else numbers[0]
        if so_far is None:
            return Reply(f"The tool gave no number: {told[-1]}")
        names = _numeric(tool)
        return Reply(calls=(ToolCall(tool.name, dict(zip(names, (so_far, numbers[done + 1]), strict=False))),))
    last = _first_number(told[-1])
    return Reply(f"{question} = {last}" if last is not None else f"The tool gave no number: {told[-1]}")


_TRIP = (("weather",), ("flight", "hotel"), ("budget", "cost", "price"), ("book",))


def _is_trip(conversation: Conversation) -> bool:
    return re.search(r"\bplan\b.*\b(trip|holiday|journey|visit)\b", conversation.user, re.I | re.S) is not None


def _trip(conversation: Conversation) -> Reply | None:
    if not _is_trip(conversation):
        return None
    city = (places(conversation.user) or ["Lisbon"])[0]
    called = {c.name for c in conversation.calls}
    for step in _TRIP:
        tools = {t.name: t for word in step if (t := find_tool(conversation, word))}
        if tools and not called & set(tools):
            hints = {"city": city, "location": city, "destination": city, "place": city, "days": 3, "nights": 3}
            return Reply(calls=tuple(call_tool(t, **hints) for t in tools.values()))
    if not called:
        return Reply(f"A plan for {city}: look at the weather, find a flight and a hotel, check the budget, book.")
    steps = "; ".join(f"{name}: {text}" for name, text in pairs(conversation))
    return Reply(f"Your trip to {city} is planned. {steps}.")


def _refund(conversation: Conversation) -> Reply | None:
    order = re.search(r"\brefund\b.*?\border\s+([\w-]+)", conversation.user, re.IGNORECASE | re.DOTALL)
    tool = find_tool(conversation, "refund")
    if order is None:
        return None
    if tool is None:
        return Reply(f"I have no tool here that refunds order {order[1]}.")
    told = [text for name, text in pairs(conversation) if name == tool.name]
    return Reply(told[-1]) if told else Reply(calls=(call_tool(tool, order=order[1], order_id=order[1]),))


def _long(conversation: Conversation) -> Reply | None:
    if match := re.search(r"\bcount to (\d{1,6})\b", conversation.user, re.IGNORECASE):
        return Reply(" ".join(str(n + 1) for n in range(int(match[1]))))
    if not re.search(r"\blong\b.*\b(story|answer|text|poem)\b", conversation.user, re.IGNORECASE | re.DOTALL):
        return None
    return Reply(
        "Once upon a time, a small agent crossed a wide desert. "
        + " ".join(f"On day {n} it walked {n * 3} miles, wrote the number down and slept." for n in range(1, 61))
        + " On the last day it lost its memory, read what it had written down and knew how far it had come."
    )


def _hand_off(conversation: Conversation) -> Reply | None:
    targets = hand_off_targets(conversation)
    if not targets or any(is_hand_off(c.name) for c in conversation.calls):
        return None
    text = conversation.user.lower()
    asked = re.search(r"\b(hand ?off|hand me over|transfer|specialist|expert|speak to|talk to)\b", text)
    for words, target in targets:
        if any(re.search(rf"\b{re.escape(w)}", text) for w in words):
            return Reply(calls=(target,))
    return Reply(calls=(targets[0][1],)) if asked and len(targets) == 1 else None


def _handed_over(conversation: Conversation) -> Reply | None:
    taken = [c for c in conversation.calls if is_hand_off(c.name)]
    if not taken:
        return None
    last = taken[-1]
    named = last.arguments.get("agent_name") if isinstance(last.arguments, dict) else None
    who = str(named or last.name.rpartition("transfer_to_")[2] or last.name).replace("_", " ")
    who = who if who.endswith("agent") else who + " agent"
    return Reply(f"This is the {who}. You asked: {conversation.user}")


def is_hand_off(name: str) -> bool:
    """Say whether a tool of this name hands the conversation to another agent."""
    return name.rpartition("__")[2].startswith("transfer_to_")


def hand_off_targets(conversation: Conversation) -> list[tuple[tuple[str, ...], ToolCall]]:
    """List the agents that the request can hand over to: words that name each, and the call that does it."""
    out: list[tuple[tuple[str, ...], ToolCall]] = []
    for tool in conversation.tools:
        if not is_hand_off(tool.name):
            continue
        if not tool.name.endswith("transfer_to_agent"):  # a tool for each agent
            out.append((_telling(tool.name.rpartition("transfer_to_")[2]), call_tool(tool)))
            continue
        # One tool for all agents (Google ADK): their names are in the schema or in the instructions.
        schema = _properties(tool).get("agent_name", {})
        names = schema.get("enum") if isinstance(schema, dict) else None
        for name in names or re.findall(r"Agent name: (\w+)", conversation.system):
            out.append((_telling(name), ToolCall(tool.name, {"agent_name": name})))
    return out


def find_tool(conversation: Conversation, word: str) -> OfferedTool | None:
    """Return the first offered tool whose name holds `word`."""
    return next((t for t in conversation.tools if word in t.name.lower() and not is_hand_off(t.name)), None)


def call_tool(tool: OfferedTool, /, **hints: object) -> ToolCall:
    """Return a call of `tool` with plausible arguments; `hints` fill the parameters of these names."""
    arguments = fill({**tool.parameters}, hints) if tool.parameters else {}
    return ToolCall(tool.name, arguments if isinstance(arguments, dict) else {})


def pairs(conversation: Conversation) -> list[tuple[str, str]]:
    """Return (tool name, result text) of this run, in the order of the calls."""
    by_id = {r.id: r.text for r in conversation.results if r.id}
    unnamed = [r for r in conversation.results if not r.id]
    out = []
    for c in conversation.calls:
        if c.id in by_id:
            out.append((c.name, by_id[c.id]))
        elif mine := next((r for r in unnamed if r.name == c.name), None):
            unnamed.remove(mine)
            out.append((c.name, mine.text))
    return out


def places(text: str) -> list[str]:
    """Return the place names in a question, each once: capitalised words, or the word after "in", "for" or "to"."""
    match = re.search(r"\b(?:in|for|at|to)\s+(.*)", text, re.DOTALL)
    tail = match[1] if match else ""
    names = re.findall(r"[^\W\d_a-z][\w'-]*(?:\s+[^\W\d_a-z][\w'-]+)*", tail)
    if not names and (lower := re.match(r"([^\W\d_]+)", tail)):
        names = [lower[1].capitalize()]
    return list(dict.fromkeys(n.strip() for n in names if n not in ("I",)))


def wants_structure(conversation: Conversation) -> OfferedTool | None:
    """Return the tool through which the client wants its structured answer, if it uses one."""
    named = conversation.tool(conversation.tool_choice)
    if named is not None and not any(c.name == named.name for c in conversation.calls):
        return named
    for tool in conversation.tools:
        if tool.name.startswith("final_result") or tool.name == "StructuredOutput":
            return tool
    if conversation.tool_choice == "required":  # a schema given as a tool bears its class's name
        return next((t for t in conversation.tools if t.name[:1].isupper()), None)
    return None


def structured(conversation: Conversation, reply: Reply) -> Reply:
    """Turn the text that ends a dialogue into the structured answer that the client asked for, if it did."""
    if reply.calls or reply.items:
        return reply
    if conversation.output_schema is not None:
        return Reply(structured=fill(conversation.output_schema, hints(conversation, reply.text)))
    if tool := wants_structure(conversation):
        return Reply(calls=(call_tool(tool, **hints(conversation, reply.text)),))
    return reply


def hints(conversation: Conversation, text: str) -> dict[str, object]:
    """Collect values from the conversation for properties of a structured answer."""
    known: dict[str, object] = {"answer": text, "text": text, "message": text, "response": text, "summary": text}
    if found := places(conversation.user) or re.findall(r"(?<=\s)[^\W\d_a-z][\w'-]+", conversation.user):
        known |= dict.fromkeys(("city", "location", "destination", "place"), found[0])
    if said := [m[1] for t in conversation.users if (m := _INTRODUCTION.search(t))]:
        known["name"] = said[-1]
    return known


def _structured(conversation: Conversation) -> Reply | None:
    wanted = conversation.output_schema is not None or wants_structure(conversation) is not None
    return Reply("Here is the answer.") if wanted else None


STOCK: tuple[Dialogue, ...] = (
    Dialogue("hand-off", "I need the billing specialist", _hand_off),
    Dialogue("trip", "Plan a trip to Lisbon", _trip),
    Dialogue("warmest", "", _warmest),
    Dialogue("weather", "What is the weather in Paris and Oslo?", _weather),
    Dialogue("names", "My name is Ada", _names),
    Dialogue("sum", "What is 2 + 3?", _sum),
    Dialogue("refund", "Please refund order A-17", _refund),
    Dialogue("long", "Tell me a long story", _long),
    Dialogue("handed-over", "", _handed_over),
    Dialogue("structured", "", _structured),
)


def small_talk(conversation: Conversation, dialogues: Sequence[Dialogue] = STOCK) -> Reply:
    """Answer what no dialogue is about (lenient mode)."""
    if told := pairs(conversation):
        return Reply("Done. " + " ".join(f"{name} said: {text}." for name, text in told))
    tries = ", ".join(f'"{d.example}"' for d in dialogues if d.example)
    return Reply(f'You said: "{conversation.user}". I am an offline stand-in for a model. Try: {tries}.')


def _join(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def _telling(name: str) -> tuple[str, ...]:
    dull = {"agent", "assistant", "transfer", "to", "the", "team", "expert", "specialist", "bot", ""}
    return tuple(w for w in re.split(r"[\W_]+", name.lower()) if w not in dull)


def _properties(tool: OfferedTool) -> dict[str, object]:
    properties = tool.parameters.get("properties")
    return dict(properties) if isinstance(properties, dict) else {}


def _numeric(tool: OfferedTool) -> list[str]:
    schemas = _properties(tool)
    kinds = {n: str(s.get("type", "number")).lower() for n, s in schemas.items() if isinstance(s, dict)}
    return [n for n, kind in kinds.items() if kind in ("number", "integer")] or list(schemas)


def _number(text: str) -> int | float:
    value = float(text)
    return int(value) if value.is_integer() else value


def _first_number(text: str) -> int | float | None:
    match = re.search(r"-?\d+(?:\.\d+)?", text)
    return _number(match[0]) if match else None
