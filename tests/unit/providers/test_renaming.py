"""Another name in the text of an answer: nothing else in it changes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.providers.renaming import renamed

NAMES = st.sampled_from(["model", "m", "event", "selected_model_id", "x", '"model"', "a\\"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, VALUES), st.text(max_size=8), st.booleans(), st.booleans())
def test_any_object_means_the_same(value: dict[str, Any], name: str, ascii_only: bool, spaced: bool) -> None:
    """The outermost `model` has the new name, however deep and often such keys and words stand elsewhere."""
    separators = (" , ", " : ") if spaced else (",", ":")
    text = json.dumps(value, ensure_ascii=ascii_only, separators=separators).encode("utf-8", "surrogatepass")
    kept = {key: item for key, item in value.items() if key not in ("event", "selected_model_id")}
    wanted = {**kept, "model": name} if "model" in kept else kept
    assert json.loads(renamed(text, json.dumps(name).encode())) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (b'{"a": 1.50, "model":"m"}', b'{"a": 1.50, "model":"new"}'),
        (b'{"in":{"model":"m"},"model" : "m" , "b":[] }', b'{"in":{"model":"m"},"model" : "new" , "b":[] }'),
        (b'{"said":"\\"model\\":\\"m\\"","model":"m"}', b'{"said":"\\"model\\":\\"m\\"","model":"new"}'),
        (b'{"model":null,"x":"\xc3\xbc"}', b'{"model":"new","x":"\xc3\xbc"}'),
        (b'{"a":1}', b'{"a":1}'),
        (b'{"model":{"id":1},"a":NaN}', b'{"model":"new","a":null}'),
        (b'{"model":"m","model":"n"}', b'{"model":"new"}'),
    ],
)
def test_every_other_byte_stays(text: bytes, wanted: bytes) -> None:
    """An object is written anew only where it could not be read, or where its model stands in it twice."""
    assert renamed(text, b'"new"') == wanted
