# The text of an agent, watched from elsewhere while its task runs: the task posts its events to an app.
#
# Type, in one terminal:  python examples/watch.py
#       in another:       export WATCH_URL=http://127.0.0.1:8123
#                         flyte run --local examples/watch.py tell --question "Tell me a long story"
# See:   the first terminal prints the answer as it is made, and what the tools do. Stop it, and the agent goes on without it.
#
# On a cluster, give the task the address of your app, and a secret for its headers:
#   post_events(url, headers={"Authorization": f"Bearer {os.environ['APP_TOKEN']}"})
# With a key of your own:  export OPENAI_API_KEY=...
# Without one:             python -m flyteplugins.agents.conformance.models -- flyte run --local ...
import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import flyte

from flyteplugins.agents.core import post_events
from flyteplugins.agents.openai import run_agent

env = flyte.TaskEnvironment("watch")


@env.task(report=True, retries=3)
async def tell(question: str) -> str:
    url = os.environ.get("WATCH_URL")
    return await run_agent(question, model="gpt-4.1", on_event=post_events(url) if url else None)


class App(BaseHTTPRequestHandler):
    """Prints what it is sent; a real app would hand it on to a browser."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        for event in body["events"]:
            show(event)
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Not a line for each request."""


def show(event: dict[str, Any]) -> None:
    mark = " (replayed)" if event["replayed"] else ""
    match event["type"]:
        case "text delta":
            print(event["text"], end="", flush=True)
        case "turn finished":
            print(f"\n[a turn of {event['usage']['output_tokens']} tokens{mark}]", flush=True)
        case "tool call finished":
            print(f"[{event['name']}: {event['error'] or event['result']}{mark}]", flush=True)
        case "run finished":
            print(f"[{event['agent']} {'failed: ' + event['error'] if event['error'] else 'is done'}]", flush=True)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if sys.argv[1:] else 8123), App)
    print(f"Waiting for events at http://127.0.0.1:{server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()
