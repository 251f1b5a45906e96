"""Ids of outputs: what they depend on, and where they are found in messages."""

import json

import pytest

from elbowroom.context.outputs.output import is_ref_id, ref_to, ref_to_media, references_in

REF = ref_to("me", "text").id


def test_an_id_depends_on_owner_and_content_alone() -> None:
    """It is the same in every process, and another for another owner, text, type or byte."""
    assert ref_to("me", "text").id == "zxszu9ifhhk3"
    ids = {
        REF,
        ref_to("you", "text").id,
        ref_to("me", "texts").id,
        ref_to("\ud800", "text").id,
        ref_to("me", "").id,
        ref_to_media("me", "", b"text").id,
        ref_to_media("me", "image/png", b"text").id,
        ref_to_media("me", "image/pn", b"gtext").id,
    }
    assert len(ids) == 8
    assert all(map(is_ref_id, ids))


@pytest.mark.parametrize(
    "form",
    [
        "ref={}",
        "[tool output trimmed; ref={}]",
        "read notes/plan.md lines 1-50; ref={}",
        'tool_output_cache(ref_id="{}", offset=3)',
        "tool_output_cache(ref_id='{}')",
        '{{"ref_id": "{}"}}',
        '{{"ref_id":"{}"}}',
        "ref: {}.",
        "ref_id = {}\nmore",
        "(ref {})",
    ],
)
def test_references_are_found_in_json_of_any_depth(form: str) -> None:
    """An id is found as it is told to the model, as the model writes it, and in JSON inside JSON of both."""
    text = f"before {form.format(REF)} after"
    for _ in range(4):
        assert references_in(text) == {REF}
        text = json.dumps({"content": text})


@pytest.mark.parametrize("text", ["", "{}", "href {}", "ref={}x", "ref=x{}", "reference {}", "ref=" + "=" * 50 + "{}"])
def test_other_words_are_no_references(text: str) -> None:
    """Words of twelve letters are no ids unless they stand behind `ref`, and longer ones never are."""
    assert references_in(text.format(REF)) == ({REF} if text == "href {}" else set())
