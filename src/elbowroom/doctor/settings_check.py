"""Checks of the settings file: what stands in it without effect, and what is doubtful."""

from collections.abc import Mapping

from elbowroom.doctor.finding import Finding
from elbowroom.doctor.patient_thread import in_thread
from elbowroom.doctor.subject import Subject
from elbowroom.errors import SettingsError
from elbowroom.settings.layers import LoadedSettings
from elbowroom.settings.mcp_doubts import doubtful_servers
from elbowroom.settings.vault_folders import missing_folders

CHECK = "settings"


def wrong_settings(error: SettingsError, path: str) -> list[Finding]:
    """Return what is said about settings that cannot be used at all."""
    lines = [line for line in error.message.splitlines() if line.strip()]
    remedy = "Correct it; `elbowroom config check` says whether it is accepted. Most other checks wait for that."
    return [
        Finding("fail", CHECK, line.removeprefix(f"{path}: "), path, remedy if line is lines[-1] else "")
        for line in lines
    ]


def slow_settings(path: str) -> list[Finding]:
    """Return what is said where the settings cannot even be read in time."""
    what = "The settings file, or a folder or secret file that it names, could not be read in time."
    remedy = "A disk or a network share hangs: see whether the settings file and vault.path can be opened at all."
    return [Finding("fail", CHECK, what, path, remedy)]


async def check_settings(subject: Subject) -> list[Finding]:
    """Return a finding for each warning about the settings; those that other checks explain are theirs."""
    loaded = subject.loaded
    elsewhere = await in_thread(lambda: _told_elsewhere(loaded, subject.environ))
    findings = [
        Finding("warn", CHECK, warning.removeprefix(f"{loaded.path}: "), str(loaded.path), _remedy(warning))
        for warning in loaded.warnings
        if warning not in elsewhere
    ]
    if findings:
        return findings
    there = f"{loaded.path} is accepted" if loaded.path.exists() else f"There is no {loaded.path}: defaults are used"
    return [Finding("ok", CHECK, f"{there}.")]


def _told_elsewhere(loaded: LoadedSettings, environ: Mapping[str, str]) -> set[str]:
    doubts = doubtful_servers(loaded.settings, loaded.folder, environ)
    return {f"{loaded.path}: {sentence}" for sentence in (*missing_folders(loaded.settings), *doubts)}


def _remedy(warning: str) -> str:
    if "is not a setting of this version" in warning or "is not known" in warning:
        return "Correct the name or remove it; docs/settings.md lists all keys."
    if "holds the secret itself" in warning:
        return "Put it into an environment variable and write env:NAME, or into a file and write file:PATH."
    if "names a variable that is not set" in warning:
        return "Set the variable where elbowroom is started, or remove the line."
    return "Change it in the settings file, or leave it where it is meant so."
