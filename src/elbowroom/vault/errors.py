"""Why something cannot be done in the vault, in words that the model which asked for it can act on.

ElbowroomError
└── VaultError         500  what is wrong, and what to do instead
    ├── NoSuchNote     500  no note of this name, with names that are near
    ├── NoSuchFolder   500  no folder of this name, with names that are near
    ├── Closed         500  not for agents: outside, hidden, a link, a device
    └── Moved          500  changed since it was read; read it again
"""

from elbowroom.errors import ElbowroomError


class VaultError(ElbowroomError):
    """Something cannot be done in the vault."""

    code = "vault_error"


class NoSuchNote(VaultError):
    """There is no such note, or none that agents may see."""

    code = "no_such_note"


class NoSuchFolder(VaultError):
    """There is no such folder, or none that agents may see."""

    code = "no_such_folder"


class Closed(VaultError):
    """This is not open to agents."""

    code = "vault_closed"


class Moved(VaultError):
    """The note is not the one that was read: somebody has changed it since."""

    code = "note_changed"
