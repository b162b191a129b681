"""Kinds that are not Kubernetes' own, held against their CRDs: a field that a CRD does not name is an error."""

import functools
import json
import pathlib

import jsonschema
import yaml

CRDS = pathlib.Path(__file__).parent / "crds"


def strict(schema: object) -> object:
    """A CRD's schema as JSON schema."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    made = {key: strict(value) for key, value in schema.items() if not key.startswith("x-kubernetes-")}
    if "properties" in schema and isinstance(schema["properties"], dict) and schema.get("type") == "object":
        made["properties"] = {key: strict(value) for key, value in schema["properties"].items()}
        if "additionalProperties" not in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            made["additionalProperties"] = False
    if made.pop("nullable", False) and "type" in made:
        made["type"] = [made["type"], "null"]
    return made


@functools.cache
def validator(api_version: str, kind: str) -> jsonschema.Draft202012Validator | None:
    """Of a kind that a CRD here is of. Files are called GROUP_PLURAL."""
    for path in CRDS.glob(f"{api_version.partition('/')[0]}_{kind.lower()}s.*"):
        if path.suffix == ".json":
            return jsonschema.Draft202012Validator(json.loads(path.read_text()))
        crd = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        [version] = [v for v in crd["spec"]["versions"] if f"{crd['spec']['group']}/{v['name']}" == api_version]
        return jsonschema.Draft202012Validator(strict(version["schema"]["openAPIV3Schema"]))
    return None


def faults(document: dict) -> list[str] | None:
    """What is wrong with it; None for a kind that no CRD here is of."""
    against = validator(document["apiVersion"], document["kind"])
    if against is None:
        return None
    return [f"{'/'.join(map(str, error.path))}: {error.message[:300]}" for error in against.iter_errors(document)]
