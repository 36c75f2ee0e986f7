"""The types that the decoder of the queue object is made from."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import inspect

from bucketq.codec.decode import _ObjectFields


def _classes(shape: object, seen: set[type]) -> Iterator[type]:
    """Yield the class of a type, and those of everything in it."""
    if isinstance(shape, inspect.StructType | inspect.NamedTupleType):
        if shape.cls in seen:
            return
        seen.add(shape.cls)
        yield shape.cls
        for field in shape.fields:
            yield from _classes(field.type, seen)
    inner = [getattr(shape, name, None) for name in ("item_type", "key_type", "value_type")]
    for each in (*inner, *getattr(shape, "types", ()), *getattr(shape, "item_types", ())):
        if each is not None:
            yield from _classes(each, seen)


def test_no_annotation_has_to_be_compiled() -> None:
    """msgspec compiles annotations that are strings, which would be felt at every start."""
    classes = list(_classes(inspect.type_info(_ObjectFields), set()))
    texts = [
        f"{each.__module__}.{each.__qualname__}.{name}"
        for each in classes
        for name, annotation in each.__annotations__.items()
        if isinstance(annotation, str)
    ]
    assert len(classes) > 20
    assert not texts, "leave out `from __future__ import annotations` where these are defined"
