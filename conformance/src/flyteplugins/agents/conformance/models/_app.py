"""The HTTP application: routes to wires, journal, faults and the control endpoints."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ._connections import Connections
from ._conversation import Conversation
from ._delivery import Delivery
from ._errors import Refusal
from ._faults import Fault, FaultBook
from ._journal import Entry, Journal
from ._json import JsonObject, compact
from ._model import OfflineModel
from ._scripts import fault_from_json, script_from_json
from ._wires import HttpCall, SideRoute, Wire

logger = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]


class Application:
    """Everything behind one port.

    Args:
        model: Chooses the replies.
        wires: The protocols to serve.
        journal: Where requests are written down.
        faults: What goes wrong.
        connections: The server's connections.
    """

    def __init__(
        self,
        model: OfflineModel,
        wires: tuple[Wire, ...],
        journal: Journal,
        faults: FaultBook,
        connections: Connections,
    ) -> None:
        self.model = model
        self.wires = wires
        self.journal = journal
        self.faults = faults
        self.connections = connections
        routes = [
            Route("/_health", self._health, methods=["GET"]),
            Route("/_journal", self._read_journal, methods=["GET"]),
            Route("/_journal", self._clear_journal, methods=["DELETE"]),
            Route("/_script", self._add_script, methods=["POST"]),
            Route("/_faults", self._add_fault, methods=["POST"]),
            Route("/_state", self._clear_all, methods=["DELETE"]),
        ]
        for wire in wires:
            routes += [Route(wire.prefix + p, self._model_endpoint(wire, p), methods=["POST"]) for p in wire.paths]
        for wire in wires:
            routes += [
                Route(wire.prefix + side.path, self._side_endpoint(wire, side), methods=[side.method])
                for side in wire.side_routes()
            ]
        routes.append(Route("/{path:path}", self._unknown, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]))
        self.asgi = Starlette(routes=routes)

    def clear(self) -> None:
        """Forget scripts, faults, the journal and all server-side state."""
        self.model.clear()
        self.faults.clear()
        self.journal.clear()
        for wire in self.wires:
            wire.clear()

    # -- model requests

    def _model_endpoint(self, wire: Wire, path: str) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            entry = self.journal.open(request.method, request.url.path, request.headers)
            self.journal.note(entry, wire=wire.name)
            try:
                call = await _read(request, path)
                return self._respond(wire, call, entry)
            except Refusal as refusal:
                return self._refused(wire, entry, refusal)
            except Exception as error:  # a script's function may raise anything; clients do not retry 400
                message = f"The offline model server failed: {type(error).__name__}: {error}"
                logger.exception("%s %s", request.method, request.url.path)
                return self._refused(wire, entry, Refusal(400, message, kind="server"))

        return endpoint

    def _respond(self, wire: Wire, call: HttpCall, entry: Entry) -> Response:
        self.journal.note(entry, body=call.body)
        if wire.strict and not wire.key(call):
            raise Refusal(401, f"No API key came in {' or '.join(wire.auth_headers)}.", kind="unauthorized")
        conversation = self._decoded(wire, call)
        self.journal.note(
            entry,
            model=conversation.model,
            user=conversation.user,
            turn=conversation.turn,
            streamed=conversation.streamed,
            identity=conversation.identity,
        )
        if wire.strict:
            wire.validate(call)
            wire.check(call, conversation)
        fault = self.faults.pick(conversation)
        if fault and fault.kind in ("status", "hang", "reset"):
            return self._failed(wire, entry, fault)
        choice = self.model.choose(conversation)
        self.journal.note(entry, rule=choice.rule)
        if not fault and choice.owner:
            fault = self.faults.pick(conversation, choice.owner, choice.reply.faults)
            if fault and fault.kind in ("status", "hang", "reset"):
                return self._failed(wire, entry, fault)
        answer = self.model.answer(conversation, choice.reply, wire.call_id)
        usage = answer.usage
        while following := wire.hand_over(conversation, answer):
            conversation = following
            answer = self.model.answer(following, self.model.choose(following).reply, wire.call_id)
            usage += answer.usage
        wire.admit(conversation, answer)
        response_id = wire.commit(conversation, answer)
        self.journal.note(entry, status=200, response_id=response_id, usage=usage, fault=str(fault) if fault else "")
        streamed = conversation.streamed
        return Delivery(
            wire.events(conversation, answer) if streamed else [_bytes(wire.encode(conversation, answer))],
            self.connections,
            streamed=streamed,
            headers={"x-request-id": f"req_{entry.number}"},
            fault=fault,
            pause=answer.reply.seconds_per_piece,
            done=lambda: self.journal.note(entry, delivered=True),
        )

    @staticmethod
    def _decoded(wire: Wire, call: HttpCall) -> Conversation:
        try:
            return wire.decode(call)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if wire.strict:
                wire.validate(call)  # which says it better, where the SDK's types are at hand
            message = f"The body has not the form of a request to {wire.name}: {type(error).__name__}: {error}."
            raise Refusal(400, message) from error

    def _failed(self, wire: Wire, entry: Entry, fault: Fault) -> Response:
        self.journal.note(entry, status=fault.status, fault=str(fault), error=fault.message)
        headers = {}
        if fault.retry_after is not None:
            headers["retry-after"] = f"{fault.retry_after:g}"
        body = wire.error(Refusal(fault.status, fault.message)) if fault.kind == "status" else {}
        return Delivery([_bytes(body)], self.connections, status=fault.status or 200, headers=headers, fault=fault)

    def _refused(self, wire: Wire, entry: Entry, refusal: Refusal) -> Response:
        self.journal.note(entry, status=refusal.status, error=refusal.message)
        body = wire.error(refusal)
        return Response(_bytes(body), refusal.status, media_type="application/json")

    # -- stored state and the like

    def _side_endpoint(self, wire: Wire, side: SideRoute) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            entry = self.journal.open(request.method, request.url.path, request.headers)
            try:
                call = await _read(request, side.path)
                self.journal.note(entry, body=call.body)
                answer = side.answer(call)
            except Refusal as refusal:
                return self._refused(wire, entry, refusal)
            self.journal.note(entry, status=200, delivered=True)
            if answer is None:
                return Response(status_code=204)
            return Response(_bytes(answer), media_type="application/json")

        return endpoint

    async def _unknown(self, request: Request) -> Response:
        entry = self.journal.open(request.method, request.url.path, request.headers)
        message = f"The offline model server has no {request.method} {request.url.path}."
        self.journal.note(entry, status=404, error=message)
        return JSONResponse({"error": {"message": message, "type": "not_found"}, "detail": message}, 404)

    # -- control

    async def _health(self, _request: Request) -> Response:
        return JSONResponse({"strict": self.model.strict, "wires": [w.name for w in self.wires]})

    async def _read_journal(self, _request: Request) -> Response:
        entries = [e.as_json() for e in self.journal.all]
        return Response(_bytes({"entries": entries}), media_type="application/json")

    async def _clear_journal(self, _request: Request) -> Response:
        self.journal.clear()
        return Response(status_code=204)

    async def _clear_all(self, _request: Request) -> Response:
        self.clear()
        return Response(status_code=204)

    async def _add_script(self, request: Request) -> Response:
        return await self._control(request, lambda data: self.model.add(script_from_json(data)))

    async def _add_fault(self, request: Request) -> Response:
        return await self._control(request, lambda data: self.faults.add(fault_from_json(data)))

    async def _control(self, request: Request, apply: Callable[[JsonObject], None]) -> Response:
        try:
            apply((await _read(request, request.url.path)).body)
        except (ValueError, TypeError, Refusal) as error:
            return JSONResponse({"error": str(error)}, 400)
        return Response(status_code=204)


async def _read(request: Request, path: str) -> HttpCall:
    try:
        raw = await request.body()
    except ClientDisconnect as error:
        raise Refusal(400, "The client went away before its request was complete.") from error
    body: Any = {}
    if raw:
        try:
            body = json.loads(raw)
        except ValueError as error:
            raise Refusal(400, f"We could not parse the JSON body of your request: {error}.") from error
        if not isinstance(body, dict):
            raise Refusal(400, f"The request body is a JSON object; got {type(body).__name__}.")
    headers = {k.lower(): v for k, v in request.headers.items()}
    return HttpCall(path, dict(request.path_params), dict(request.query_params), headers, body)


def _bytes(value: object) -> bytes:
    return compact(value).encode("utf-8", "surrogatepass")
