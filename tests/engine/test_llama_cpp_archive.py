"""The archive of real vocabularies is the pinned one, or there is none and a reason."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from llama_cpp_archive import FILE_NAME, ArchiveUnavailableError, llama_cpp_archive

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_archive_out_of_reach_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a way to the archive the reason is pip's own, and a wrong file is not taken for it."""
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (tmp_path / FILE_NAME).write_bytes(b"something else")
    with pytest.raises(ArchiveUnavailableError, match="No matching distribution"):
        llama_cpp_archive(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
