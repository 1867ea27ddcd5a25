"""The crash suite of the conformance kit: on an agent that is built from arguments, and on a graph of the caller's."""

from __future__ import annotations

from pathlib import Path

from flyteplugins.agents.conformance.crash import Dialogue
from flyteplugins.agents.conformance.crash.testing import CrashSuite

_GRAPH = '''
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


async def ask(state: MessagesState) -> dict:
    """Make the model in the node, where nobody can reach it beforehand."""
    model = ChatOpenAI(model="gpt-4.1").bind_tools([temperature, note])
    return {"messages": [await model.ainvoke(state["messages"])]}


builder = StateGraph(MessagesState)
builder.add_node("ask", ask)
builder.add_node("tools", ToolNode([temperature, note]))
builder.add_edge(START, "ask")
builder.add_conditional_edges("ask", tools_condition)
builder.add_edge("tools", "ask")
graph = builder.compile()
'''


class GraphDialogue(Dialogue):
    """The standard dialogue on a graph that the caller built."""

    def write_program(self, folder: Path) -> Path:
        """Write the program, and have it run the graph."""
        file = super().write_program(folder)
        text = file.read_text()
        arguments = f'tools=[temperature, note],\n        model="{self.model}",'
        task = "@env.task(retries=2, report=True)"
        assert arguments in text
        assert task in text
        file.unlink()
        other = file.with_name("standard_langgraph.py")  # both programs may be imported in one process
        other.write_text(text.replace(arguments, "agent=graph,").replace(task, f"{_GRAPH}\n\n{task}"))
        return other


class TestCrashOfCreateAgent(CrashSuite):
    dialogue = Dialogue("langchain", model="openai:gpt-4.1")
    sdk = ("langchain", "langchain_core", "langgraph", "deepagents", "openai")


class TestCrashOfAStateGraph(CrashSuite):
    dialogue = GraphDialogue("langchain", model="openai:gpt-4.1")
    sdk = ("langchain", "langchain_core", "langgraph", "deepagents", "openai")
