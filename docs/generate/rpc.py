"""The page of the gRPC protocol: services, messages and enums with the comments of proto/."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc
from markdown import escaped, head, joined

PROTO = Path(__file__).resolve().parents[2] / "proto"
PACKAGE = "windrow.rpc.v1"
TEXT = f"""\
The gRPC protocol between clients, master and agents: package `{PACKAGE}`, in `proto/`. Agents call `AgentService` and
`ArtifactService`, clients call all others. Beyond these, a master offers `grpc.health.v1.Health` and server reflection.

Numbers are those of the fields. Errors carry a gRPC status code and, in `google.rpc.ErrorInfo`, a reason.
"""
MESSAGE, ENUM, SERVICE = 4, 5, 6
"""Numbers of the lists of a file's descriptor, which the paths of its comments begin with."""
FIELD, VALUE, METHOD = 2, 2, 2

_NAMES = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in FieldDescriptorProto.Type.items()
    if name not in ("TYPE_MESSAGE", "TYPE_ENUM")
}


class File:
    """One file of proto/, with its comments."""

    def __init__(self, descriptor: FileDescriptorProto) -> None:
        self.descriptor = descriptor
        self._comments = {
            tuple(place.path): place.leading_comments.strip("\n") for place in descriptor.source_code_info.location
        }

    def comment(self, *path: int) -> list[str]:
        """The lines of the comment at a place."""
        return [line.strip() for line in self._comments.get(path, "").splitlines()]


def page() -> str:
    """The whole page."""
    files = [File(one) for one in descriptors() if one.package == PACKAGE]
    lines = head("gRPC protocol", "`proto/`", TEXT)
    for file in files:
        for number, service in enumerate(file.descriptor.service):
            lines += [f"## {service.name}", "", *text(file.comment(SERVICE, number)), ""]
            for at, method in enumerate(service.method):
                request = f"{'stream ' * method.client_streaming}{link(method.input_type)}"
                answer = f"{'stream ' * method.server_streaming}{link(method.output_type)}"
                lines += [f"### {service.name}.{method.name}", "", f"{request} → {answer}", ""]
                lines += [*text(file.comment(SERVICE, number, METHOD, at)), ""]
    for file in files:
        if file.descriptor.message_type or file.descriptor.enum_type:
            lines += [f"## `{file.descriptor.name.rpartition('/')[2]}`", ""]
        for number, message in enumerate(file.descriptor.message_type):
            lines += [f"### {message.name}", "", *text(file.comment(MESSAGE, number)), ""]
            lines += [*fields(file, message, number), ""] if message.field else []
        for number, kind in enumerate(file.descriptor.enum_type):
            lines += [f"### {kind.name}", "", *text(file.comment(ENUM, number)), ""]
            for at, value in enumerate(kind.value):
                lines.append(f"- `{value.name}` = {value.number}: {inline(file.comment(ENUM, number, VALUE, at))}")
            lines.append("")
    return joined(lines)


def descriptors() -> Iterator[FileDescriptorProto]:
    """The files of proto/, with their comments. Raises RuntimeError."""
    names = sorted(path.relative_to(PROTO).as_posix() for path in PROTO.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "descriptors")
        included = [f"-I{PROTO}", f"-I{resources.files('grpc_tools') / '_proto'}"]
        if protoc.main(["protoc", *included, "--include_source_info", f"--descriptor_set_out={made}", *names]):
            print("proto/ cannot be compiled", file=sys.stderr)
            raise RuntimeError("protoc failed")
        yield from FileDescriptorSet.FromString(made.read_bytes()).file


def fields(file: File, message: Any, number: int) -> Iterator[str]:
    """The fields of a message, an entry each."""
    entries = {f".{PACKAGE}.{message.name}.{one.name}": one for one in message.nested_type if one.options.map_entry}
    for at, field in enumerate(message.field):
        pair = entries.get(field.type_name)
        if pair is not None:
            kind = f"map of {type_of(pair.field[0])} to {type_of(pair.field[1])}"
        else:
            repeated = field.label == FieldDescriptorProto.LABEL_REPEATED
            kind = f"{'repeated ' * repeated}{'optional ' * field.proto3_optional}{type_of(field)}"
        if field.HasField("oneof_index") and not field.proto3_optional:
            kind += f", one of `{message.oneof_decl[field.oneof_index].name}`"
        yield f"- `{field.name}` = {field.number} ({kind}): {inline(file.comment(MESSAGE, number, FIELD, at))}"


def type_of(field: Any) -> str:
    """A field's type, with a link if it is one of ours."""
    return _NAMES.get(field.type) or link(field.type_name)


def link(name: str) -> str:
    """A message or enum by its full name."""
    short = name.removeprefix(f".{PACKAGE}.")
    return f"`{name.lstrip('.')}`" if short == name else f"[{short}](#{short.lower()})"


def text(comment: list[str]) -> list[str]:
    """A comment as a paragraph."""
    return [inline(comment)]


def inline(comment: list[str]) -> str:
    """A comment in an entry of a list."""
    return escaped(" ".join(comment))
