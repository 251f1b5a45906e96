"""A chat whose first answer says something that no summary keeps, and a question about it."""

from small_window import Message, history

SECRET = (
    "The harbour office keeps the spare key in locker K-4417-QX, behind the blue tarpaulin"
    + " where the sea was calm, the boat was half full and the engine ran well" * 4
    + "."
)
"""Too long a sentence for a summary to quote."""
ABOUT = "Where does the harbour office keep the spare key?"
KINDS = ("grey", "long", "old", "steel", "thin", "wet")


def with_secret(exchanges: int, last: str, secret: str = SECRET) -> list[Message]:
    """Return a history whose first answer says something that no summary keeps, with its last message."""
    messages = history(exchanges)
    for number in range(4, 2 * exchanges, 2):  # of which a summary can quote a few
        kind = " ".join(word for bit, word in enumerate(KINDS) if number >> 1 & 1 << bit)  # no two are of one form
        berth = (
            f" Berth {number} has the {kind} cable {number * 7919:X}-QZ{number} and buoy {number * 6131:X}-RT{number}."
        )
        messages[number] = {"role": "assistant", "content": berth * 2}
    messages[2] = {"role": "assistant", "content": secret}
    return [*messages[:-1], {"role": "user", "content": last}]
