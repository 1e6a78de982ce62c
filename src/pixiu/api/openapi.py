"""The OpenAPI document, made from the verbs and the routes: what it says is what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pixiu.api.answers import STATUSES
from pixiu.api.schemas import COMPONENTS, GIVEN_ID, OF_VERB, PARAMS, TEXT, Operation, list_of, ref, thing
from pixiu.model.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["READS", "document"]

Schema = dict[str, Any]

READS: dict[str, tuple[str, tuple[str, ...]]] = {
    "/v1/users/{user}": ("user", ()),
    "/v1/groups/{group}": ("group", ("offset", "cursor", "limit")),
    "/v1/contacts": ("contacts", ("cursor", "limit")),
    "/v1/history": ("history", ("with", "group", "before", "after", "limit", "direction")),
    "/v1/scheduled": ("scheduled", ("cursor", "limit")),
}
"""Reading actions that have a path of their own, with what their query may hold."""

_REFUSALS = {
    400: "Not understood, or against the rules of the action.",
    401: "No token, or not a good one.",
    403: "Not for this caller.",
    404: "There is no such thing.",
    405: "Not with this method.",
    408: "The body took too long.",
    409: "It clashes with what is there already.",
    413: "Over a limit.",
    429: "Too often; Retry-After says when to try again.",
    500: "A bug of Pixiu's.",
    503: "Not now; Retry-After says when to try again, where that is known.",
}


def document(operations: Mapping[str, Operation], *, with_administration: bool = True) -> Schema:
    """OpenAPI 3.1."""
    paths: Schema = {}
    for name, operation in operations.items():
        shown = _operation(name, operation.summary, _answers(operation.result), for_admins=operation.is_for_admins)
        paths[f"/v1/actions/{name}"] = {"post": shown | _body(operation.params)}
    for path, (name, query) in READS.items():
        parameters = [_in_path(word) for word in _words(path)] + [
            _in_query(word, OF_VERB.get((name, word))) for word in query
        ]
        shown = _operation(f"get_{name}", operations[name].summary, _answers(operations[name].result))
        paths[path] = {"get": shown | ({"parameters": parameters} if parameters else {})}
    paths["/v1/push"] = {"post": _push(operations["push"])}
    paths |= (_admin_paths() if with_administration else {}) | _health_paths()
    codes = {"type": "string", "enum": sorted(STATUSES)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Pixiu",
            "version": __version__,
            "summary": "Every action of Pixiu over HTTP.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {**COMPONENTS, "ErrorCode": codes},
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"}},
        },
    }


def _operation(name: str, summary: str, responses: Schema, *, for_admins: bool = False) -> Schema:
    shown: Schema = {"operationId": name, "summary": summary, "responses": responses, "security": [{"bearer": []}]}
    return {**shown, "description": "For admins."} if for_admins else shown


def _answers(result: Schema, *, refusals: Iterable[int] = tuple(_REFUSALS)) -> Schema:
    responses: Schema = {"200": _json("Done.", result)}
    for status in refusals:
        responses[str(status)] = _json(_REFUSALS[status], ref("Error"))
    for name in {"429", "503"} & responses.keys():
        responses[name]["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}}
    return responses


def _json(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _body(schema: Schema) -> Schema:
    """A body; one that needs nothing may be left out."""
    return {"requestBody": {"required": "required" in schema, "content": {"application/json": {"schema": schema}}}}


def _words(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]


def _in_path(word: str) -> Schema:
    schema = {"type": "string", "minLength": 1, "maxLength": 64}
    return {"name": word, "in": "path", "required": True, "schema": schema}


def _in_query(word: str, schema: Schema | None = None, *, required: bool = False) -> Schema:
    return {"name": word, "in": "query", "required": required, "schema": PARAMS[word] if schema is None else schema}


def _push(operation: Operation) -> Schema:
    shown = _operation("push_v1", "Push as gomsg has it: bodies to users' platforms.", _answers(operation.result))
    return shown | _body(operation.params) | {"description": "For admins. gomsg's PushRequest, by its field names."}


def _for_admins(name: str, summary: str, result: Schema, **more: object) -> Schema:
    return _operation(name, summary, _answers(result), for_admins=True) | more


def _pipeline_paths() -> Schema:
    """The pipeline beside a node."""
    cut = _for_admins("cut", "What waits in the stores, one JSON value per line; for the pipeline.", {})
    state = _for_admins("pipeline", "What the pipeline beside this node does.", ref("Pipeline"))
    said = _for_admins("pipeline_report", "Usage, latency, heat and audit, from the tables.", {"type": "object"})
    return {
        "/v1/admin/cut": {"get": _lines(cut)},
        "/v1/admin/pipeline": {"get": state},
        "/v1/admin/pipeline/report": {"get": said},
    }


def _admin_paths() -> Schema:
    """Looking after a node. All of it is for admins."""
    admin = _for_admins
    whole = {"type": "integer", "minimum": 0}
    user = _in_query("user")
    some = [_in_query("after", GIVEN_ID), _in_query("limit", {"type": "integer", "minimum": 1, "maximum": 1000})]
    times = [_in_query("from", whole), _in_query("to", whole)]
    one = {"name": "message_id", "in": "query", "required": True, "schema": PARAMS["message_id"]}
    kick = thing(
        {"user": PARAMS["user"], "session_id": PARAMS["message_id"], "reason": {"type": "string", "maxLength": 64}},
        required=("user",),
    )
    letters = thing({"dead_letters": list_of(ref("DeadLetter")), "has_more": {"type": "boolean"}})
    letter = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer", "minimum": 1}}
    more = {"has_more": {"type": "boolean"}}
    sessions = thing({"sessions": list_of(ref("Session")), **more}, required=("sessions", "has_more"))
    topics = thing({"topics": list_of(ref("Topic")), **more}, required=("topics", "has_more"))
    names = [_in_query("after", {"type": "string", "maxLength": 128}), some[1]]
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    tail = [name, some[0], _in_query("limit", {"type": "integer", "minimum": 1, "maximum": 200})]
    counted = ("segments", "records", "messages", "topic_files", "topic_messages", "delays", "bytes")
    in_kafka = {"log": TEXT, "kept": whole, "kept_for": {"type": "object", "additionalProperties": TEXT}}
    redaction = thing(
        {"users": list_of(TEXT), **dict.fromkeys(counted, whole), "finished_before": {"type": "boolean"}, **in_kafka},
        required=("users", *counted),
    )
    waiting = thing({"scheduled": list_of(ref("Message")), "has_more": {"type": "boolean"}})
    return {
        "/v1/admin/stats": {
            "get": admin("stats", "What goes on: counters since the start, latencies, sizes.", ref("Stats"))
        },
        "/v1/admin/stats/history": {
            "get": admin(
                "stats_history", "Samples of the last half hour, oldest first: one list per column.",
                ref("StatsHistory"), parameters=[_in_query("after", {"type": "integer", "minimum": 0})],
            )
        },
        "/v1/admin/sessions": {
            "get": admin("sessions", "Sessions, of a user or of all, newest first.", sessions, parameters=[user, *some])
        },
        "/v1/admin/kick": {
            "post": admin("kick", "Close a session of a user, or all.", thing({"kicked": whole})) | _body(kick)
        },
        "/v1/admin/dead-letters": {
            "get": admin("dead_letters", "What was given up on, oldest first.", letters, parameters=some)
        },
        "/v1/admin/dead-letters/{id}/replay": {
            "post": admin("replay", "Give a dead letter back, to be tried again.", thing({"id": TEXT}))
            | {"parameters": [letter]}
        },
        "/v1/admin/scheduled": {
            "get": admin("all_scheduled", "All sends that wait for their time.", waiting, parameters=some)
        },
        "/v1/admin/topics": {
            "get": admin("topics", "Topics of the queue, by name.", topics, parameters=names)
        },
        "/v1/admin/topics/{name}/tail": {
            "get": admin("tail", "The newest messages of a topic, or those behind an event.", ref("Tail"))
            | {"parameters": tail}
        },
        "/v1/admin/audit": {
            "get": admin("audit", "Prove that nothing was lost.", ref("Audit"), parameters=times)
        },
        "/v1/admin/redact": {
            "post": admin("redact", "Blank in the files what erased users wrote.", redaction)
        },
        "/v1/admin/explain": {
            "get": admin("explain", "One message's way, hop by hop.", ref("Waterfall"), parameters=[one])
        },
        **_pipeline_paths(),
    }  # fmt: skip


def _lines(operation: Schema) -> Schema:
    """An answer of many JSON values, one per line."""
    operation["responses"]["200"] = {"description": "Done.", "content": {"application/x-ndjson": {"schema": TEXT}}}
    return operation


def _health_paths() -> Schema:
    """What needs no token."""

    def plain(name: str, summary: str, schema: Schema, *statuses: int) -> Schema:
        responses = _answers(schema, refusals=(405, 429, 500))
        for status in statuses:
            responses[str(status)] = _json("Not ready.", schema)
        return {"get": {"operationId": name, "summary": summary, "responses": responses, "security": []}}

    ready = thing({"ready": {"type": "boolean"}, "reasons": {"type": "object"}}, required=("ready", "reasons"))
    metrics = plain("metrics", "Metrics, for Prometheus.", {})
    metrics["get"]["responses"]["200"] = {"description": "The exposition.", "content": {"text/plain": {"schema": TEXT}}}
    return {
        "/healthz": plain("healthz", "Does it live?", thing({"status": TEXT}, required=("status",))),
        "/readyz": plain("readyz", "Should it get traffic?", ready, 503),
        "/metrics": metrics,
        "/openapi.json": plain("openapi", "This document.", {"type": "object"}),
    }
