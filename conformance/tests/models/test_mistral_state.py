"""What the server keeps for Mistral Conversations, with the real client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from flyteplugins.agents.conformance.models import Fault, ModelServer, Reply, ToolCall

sdk: Any = pytest.importorskip("mistralai.client", exc_type=ImportError)

ADD: Any = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}


@pytest.fixture
def conversations(model_server: ModelServer) -> Iterator[Any]:
    with sdk.Mistral(api_key="k", server_url=model_server.mistral_server_url) as client:
        yield client.beta.conversations


@pytest.fixture
def agents(model_server: ModelServer) -> Iterator[Any]:
    with sdk.Mistral(api_key="k", server_url=model_server.mistral_server_url) as client:
        yield client.beta.agents


def test_appending_completes_a_call(conversations: Any) -> None:
    first = conversations.start(model="m", inputs="What is 2 + 3?", tools=[ADD])
    made = first.outputs[0]
    assert len(made.tool_call_id) == 9
    with pytest.raises(sdk.errors.SDKError, match="No tool output found for add call"):
        conversations.append(conversation_id=first.conversation_id, inputs="never mind")
    result = {"type": "function.result", "tool_call_id": made.tool_call_id, "result": "5"}
    second = conversations.append(conversation_id=first.conversation_id, inputs=[result])
    assert second.outputs[0].content == "2 + 3 = 5"
    history = conversations.get_history(conversation_id=first.conversation_id).entries
    assert [e.type for e in history] == ["message.input", "function.call", "function.result", "message.output"]


def test_conversations_that_start_alike_are_two(conversations: Any) -> None:
    one, two = (conversations.start(model="m", inputs="My name is Ada") for _ in range(2))
    assert one.conversation_id != two.conversation_id
    conversations.append(conversation_id=one.conversation_id, inputs="What is my name?")
    assert len(conversations.get_history(conversation_id=two.conversation_id).entries) == 2


def test_nothing_is_kept_of_an_unstored_conversation(conversations: Any) -> None:
    first = conversations.start(model="m", inputs="My name is Ada", store=False)
    with pytest.raises(sdk.errors.SDKError, match="404"):
        conversations.append(conversation_id=first.conversation_id, inputs="What is my name?")


def test_a_lost_answer_was_applied(conversations: Any, model_server: ModelServer) -> None:
    first = conversations.start(model="m", inputs="My name is Ada")
    model_server.fault(Fault.lost(), user="What is my name")
    with pytest.raises(Exception, match=r"(?i)reset|disconnect|read"):
        conversations.append(conversation_id=first.conversation_id, inputs="What is my name?")
    history = conversations.get_history(conversation_id=first.conversation_id).entries
    assert [e.content for e in history][-2:] == ["What is my name?", "Your name is Ada."]


def test_restarting_branches_after_an_entry(conversations: Any) -> None:
    first = conversations.start(model="m", inputs="My name is Ada")
    conversations.append(conversation_id=first.conversation_id, inputs="My name is Bob")
    entry = conversations.get_history(conversation_id=first.conversation_id).entries[1]
    branch = conversations.restart(
        conversation_id=first.conversation_id, from_entry_id=entry.id, inputs="What is my name?"
    )
    assert branch.outputs[0].content == "Your name is Ada."
    assert branch.conversation_id != first.conversation_id
    assert len(conversations.get_history(conversation_id=first.conversation_id).entries) == 4
    with pytest.raises(sdk.errors.SDKError, match="no entry 'nowhere'"):
        conversations.restart(conversation_id=first.conversation_id, from_entry_id="nowhere", inputs="x")


def test_the_server_hands_over_between_agents(conversations: Any, agents: Any, model_server: ModelServer) -> None:
    billing = agents.create(model="small", name="billing", instructions="You are billing.")
    triage = agents.create(model="large", name="triage", handoffs=[billing.id])
    answer = conversations.start(agent_id=triage.id, inputs="I have a billing question")
    handed, said = answer.outputs
    assert (handed.type, handed.previous_agent_name, handed.next_agent_name) == ("agent.handoff", "triage", "billing")
    assert said.content.startswith("This is the billing agent.")
    assert (said.agent_id, said.model) == (billing.id, "small")
    entry = model_server.journal.requests()[0]
    assert entry.usage
    assert answer.usage.total_tokens == entry.usage.total
    conversations.append(conversation_id=answer.conversation_id, inputs="My name is Ada")
    assert conversations.get_history(conversation_id=answer.conversation_id).entries[-1].agent_id == billing.id


def test_the_client_may_execute_hand_offs(conversations: Any, agents: Any) -> None:
    billing = agents.create(model="small", name="billing")
    triage = agents.create(model="large", name="triage", handoffs=[billing.id])
    answer = conversations.start(agent_id=triage.id, inputs="I have a billing question", handoff_execution="client")
    assert [o.type for o in answer.outputs] == ["agent.handoff"]
    events = conversations.start_stream(agent_id=triage.id, inputs="I have a billing question")
    with events as stream:
        kinds = [e.event for e in stream]
    assert kinds[:3] == ["conversation.response.started", "agent.handoff.started", "agent.handoff.done"]
    assert kinds[-1] == "conversation.response.done"


def test_an_unknown_agent_is_refused(conversations: Any) -> None:
    with pytest.raises(sdk.errors.SDKError, match="Agent 'ag_x' not found"):
        conversations.start(agent_id="ag_x", inputs="hello")


def test_an_agent_counts_its_versions(agents: Any) -> None:
    agent = agents.create(model="m", name="helper", tools=[ADD])
    changed = agents.update(agent_id=agent.id, instructions="Be brief.")
    assert (changed.version, changed.versions, changed.instructions) == (1, [0, 1], "Be brief.")
    assert agents.get(agent_id=agent.id).tools[0].function.name == "add"


@pytest.mark.parametrize(("decision", "status"), [("allow", "allowed"), ("deny", "denied")])
def test_a_call_can_wait_for_a_confirmation(
    conversations: Any, model_server: ModelServer, decision: str, status: str
) -> None:
    wanted = Reply(calls=(ToolCall("search", {"q": "x"}, unlisted=True, confirm=True),))
    model_server.script("find", wanted, lambda c: Reply(c.results[0].text))
    first = conversations.start(model="m", inputs="find")
    made = first.outputs[0]
    assert made.confirmation_status == "pending"
    with pytest.raises(sdk.errors.SDKError, match="waits for a confirmation"):
        conversations.append(conversation_id=first.conversation_id, inputs="well?")
    given = [{"tool_call_id": made.tool_call_id, "confirmation": decision}]
    second = conversations.append(conversation_id=first.conversation_id, tool_confirmations=given)
    assert second.outputs[0].content == status
    with pytest.raises(sdk.errors.SDKError, match="does not wait for a confirmation"):
        conversations.append(conversation_id=first.conversation_id, tool_confirmations=given)


def test_an_empty_append_is_invalid(conversations: Any) -> None:
    first = conversations.start(model="m", inputs="My name is Ada")
    with pytest.raises(sdk.errors.HTTPValidationError, match="nothing to answer"):
        conversations.append(conversation_id=first.conversation_id, inputs=[])


def test_state_is_gone_after_clearing(conversations: Any, model_server: ModelServer) -> None:
    first = conversations.start(model="m", inputs="My name is Ada")
    model_server.clear()
    with pytest.raises(sdk.errors.SDKError, match="404"):
        conversations.get_history(conversation_id=first.conversation_id)
