"""Arguments of `run_agent` that are wrong whatever the SDK: said before anything is asked, in a sentence."""

from __future__ import annotations

from ._memory import Retention

__all__ = ["check_arguments"]


def check_arguments(
    *,
    input: object = "",
    model: object = None,
    instructions: object = None,
    name: object = None,
    max_turns: object = None,
    durable: object = True,
    full_result: object = False,
    memory_required: object = False,
    memory_retention: object = None,
) -> None:
    """Refuse what no adapter takes. What an SDK takes besides text is the adapter's to check.

    Args:
        input: What the user says.
        model: A model's name, or the SDK's own model; `None` for a default.
        instructions: The system text, or what the SDK takes in its place.
        name: The agent's name.
        max_turns: How many turns the SDK's loop may take; `None` for no limit.
        durable: Whether turns are recorded.
        full_result: Whether the caller wants an `AgentResult`.
        memory_required: Whether it is an error if there is no place for the memory.
        memory_retention: What the memory does not keep.

    Raises:
        TypeError: An argument is of a type that nobody takes.
        ValueError: An argument is empty or out of range.
    """
    if input is None or _is_plain(input):
        raise TypeError(f"input is {input!r}; give what the user says, as text or in the SDK's own form.")
    if model is not None and (_is_plain(model) or not _has_text(model)):
        raise _wrong("model", model, "give a model's name, or one of the SDK's models.")
    if instructions is not None and _is_plain(instructions):
        raise TypeError(f"instructions is {instructions!r}; give the system text.")
    if name is not None and not (isinstance(name, str) and name.strip()):
        raise _wrong("name", name, "give the agent a name, or leave it out.")
    if max_turns is not None:
        number = isinstance(max_turns, int) and not isinstance(max_turns, bool)
        if not (number and max_turns >= 1):  # type: ignore[operator]
            raise _wrong("max_turns", max_turns, "give a number of turns from 1, or None for no limit.", number)
    for flag, value in (("durable", durable), ("full_result", full_result), ("memory_required", memory_required)):
        if not isinstance(value, bool):
            raise TypeError(f"{flag} is {value!r}; give True or False.")
    if memory_retention is not None and not isinstance(memory_retention, Retention):
        raise TypeError(f"memory_retention is {memory_retention!r}; give a Retention, such as Retention(max_runs=100).")


def _is_plain(value: object) -> bool:
    """Whether it is a value that neither is text nor could be an SDK's object."""
    return isinstance(value, bool | int | float | complex | bytes | bytearray)


def _has_text(value: object) -> bool:
    return bool(value.strip()) if isinstance(value, str) else True


def _wrong(name: str, value: object, instead: str, right_type: bool | None = None) -> Exception:
    right_type = isinstance(value, str) if right_type is None else right_type
    return (ValueError if right_type else TypeError)(f"{name} is {value!r}; {instead}")
