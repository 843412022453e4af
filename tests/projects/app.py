"""Tools that try what their class may forbid, for tests of the host: the same acts under two classes."""

import json
import secrets
import socket
import time

from componentize_py_types import Err
from wit_world import exports
from wit_world.imports.types import (
    CallContext,
    Content_Text,
    EffectClass,
    EffectPlan,
    EffectState,
    Error,
    ErrorKind,
    Output,
    ToolDescriptor,
    ToolTraits,
)

TRY = {
    "type": "object",
    "properties": {
        "act": {"enum": ["write", "reach", "look", "note"], "description": "What to try."},
        "address": {"type": "string", "description": "Whom to reach: `IP:PORT`."},
    },
    "required": ["act"],
    "additionalProperties": False,
}
CLASSES = {"try_pure": EffectClass.PURE, "try_idempotent": EffectClass.IDEMPOTENT}


def write(_: str) -> str:
    with open("tried.txt", "w", encoding="utf-8") as file:
        file.write("tried\n")
    return "written"


def reach(address: str) -> str:
    ip, port = address.split(":")
    with socket.socket() as server:
        server.connect((ip, int(port)))
    return "reached"


def look(_: str) -> str:
    """The clock and randomness, twice each."""
    return " ".join([str(time.time_ns()), secrets.token_hex(8), str(time.time_ns()), secrets.token_hex(8)])


def note(_: str) -> str:
    """No idempotent tool: a second attempt shows in the file, with what it saw."""
    seen = look("")
    with open("noted.txt", "a", encoding="utf-8") as file:
        file.write(seen + "\n")
    return seen


ACTS = {"write": write, "reach": reach, "look": look, "note": note}


class Tools(exports.Tools):
    def describe(self) -> list[ToolDescriptor]:
        return [
            ToolDescriptor(name, "Try", "Try it.", json.dumps(TRY), None, effect, ToolTraits(0), None)
            for name, effect in CLASSES.items()
        ]

    def refine(self, name: str, args: str) -> EffectPlan:
        raise Err(Error(ErrorKind.NOT_FOUND, f"`{name}` has one class", EffectState.NOT_APPLIED))

    def invoke(self, ctx: CallContext, name: str, args: str) -> Output:
        given = json.loads(args)
        try:
            text = ACTS[given["act"]](given.get("address", ""))
        except OSError as error:
            raise Err(Error(ErrorKind.DENIED, f"the tool saw {error!r}", EffectState.NOT_APPLIED))
        return Output(structured=None, content=[Content_Text(text)], landed_before=False)
