"""The generated code is that of the .proto, and of the tools that are pinned."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from bucketq.rpc.grpc.grpc_methods import UNARY
from bucketq.rpc.protobuf import bucketq_pb2 as pb
from bucketq.rpc.protobuf.operation_codec import VERBS

ROOT = Path(__file__).resolve().parents[4]
SOURCE = ROOT / "src/bucketq/rpc/protobuf/bucketq.proto"


@pytest.mark.parametrize("name", ["bucketq_pb2.py", "bucketq_pb2.pyi"])
def test_generated_code_is_what_make_proto_makes(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={ROOT / 'src'}"]
    outputs = [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    subprocess.run([*command, *outputs, str(SOURCE)], check=True)
    made = (tmp_path / "bucketq/rpc/protobuf" / name).read_text()
    assert made == SOURCE.with_name(name).read_text(), "run `make proto`"


def test_the_broker_extra_asks_for_a_runtime_that_can_run_the_generated_code() -> None:
    text = SOURCE.with_name("bucketq_pb2.py").read_text()
    version = re.search(r"Protobuf Python Version: ([0-9.]+)", text)
    assert version is not None
    major = int(version[1].split(".")[0])
    wanted = f'"protobuf>={version[1]},<{major + 1}"'
    assert wanted in (ROOT / "pyproject.toml").read_text()


def test_every_operation_has_a_unary_method_and_every_method_is_served() -> None:
    service = pb.DESCRIPTOR.services_by_name["Queue"]
    declared = {method.name: method for method in service.methods}
    assert set(declared) == {*UNARY, "Session", "Ping"}
    assert {verb for _, verb in UNARY.values()} == set(VERBS)
    for name, (shape, verb) in UNARY.items():
        assert declared[name].input_type is shape.DESCRIPTOR
        assert [field.name for field in shape.DESCRIPTOR.fields] == ["target", "id", verb]
        call_field = pb.Call.DESCRIPTOR.fields_by_name[verb]
        assert shape.DESCRIPTOR.fields_by_name[verb].message_type is call_field.message_type


def test_every_operation_is_explained() -> None:
    """A client in another language is written from this file alone."""
    lines = SOURCE.read_text().splitlines()
    file = descriptor_pb2.FileDescriptorProto.FromString(pb.DESCRIPTOR.serialized_pb)
    operations = [field.message_type for field in pb.Call.DESCRIPTOR.oneofs[0].fields]
    verbs = {operation.name for operation in operations if operation is not None}
    assert verbs <= {message.name for message in file.message_type}
    for verb in verbs:
        opening = next(i for i, line in enumerate(lines) if line.startswith(f"message {verb} {{"))
        assert lines[opening - 1].startswith("//"), f"say what {verb} does"
