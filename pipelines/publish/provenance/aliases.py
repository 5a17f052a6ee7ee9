"""Names that Protobuf takes for others: one reader's ``build_type`` is nobody else's.

https://protobuf.dev/programming-guides/json/
"""

from __future__ import annotations

from typing import Any

from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1 import statement_pb2

from pipelines.core.jsonfile import as_dict


def refuse_aliases(told: dict[str, Any]) -> None:
    """``ValueError`` for a name that Protobuf alone takes for another one.

    ``build_definition`` would be read here, and ``buildDefinition`` by everybody else.
    """
    predicate = as_dict(told.get("predicate"))
    run = as_dict(predicate.get("runDetails"))
    made = provenance_pb2.Provenance.DESCRIPTOR.fields_by_name
    for read, message in (
        (told, statement_pb2.Statement.DESCRIPTOR),
        (predicate, provenance_pb2.Provenance.DESCRIPTOR),
        (as_dict(predicate.get("buildDefinition")), made["build_definition"].message_type),
        (run, made["run_details"].message_type),
        (as_dict(run.get("metadata")), provenance_pb2.BuildMetadata.DESCRIPTOR),
    ):
        for field in message.fields:
            if field.name != field.json_name and field.name in read:
                raise ValueError(f"it has {field.name}, expected {field.json_name}")
