"""Makes the project's own virtual environment, `.venv`, from the lock files; shared by the other scripts.

Written so that an old Python can still read it and say that it is too old.
"""

import hashlib
import os
import shutil
import subprocess
import sys

SCRIPT = os.path.abspath(sys.argv[0])
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDER = os.path.join(ROOT, ".venv")
OLDEST = (3, 11)
NEWEST_TRIED = 14
LOCKS = {"run": "requirements.lock", "dev": "requirements-dev.lock"}


def python_of_environment():
    """Return the path of the environment's interpreter, whether it exists or not."""
    return os.path.join(FOLDER, "Scripts", "python.exe") if os.name == "nt" else os.path.join(FOLDER, "bin", "python")


def need_python():
    """Go on only with Python 3.11 or newer: hand over to a newer one on the PATH, or say what is missing."""
    if sys.version_info[:2] >= OLDEST:
        return
    for minor in range(NEWEST_TRIED, OLDEST[1] - 1, -1):
        newer = shutil.which("python3.{0}".format(minor)) if hasattr(shutil, "which") else None
        if newer and starts(newer):
            hand_over([newer, SCRIPT] + sys.argv[1:])
    sys.exit(
        "elbowroom needs Python 3.11 or newer; this is Python {0}.{1} ({2}).\n"
        "Install a newer one (python.org, or your system's package manager) and run this again with it,\n"
        "for example: python3.12 {3}".format(
            sys.version_info[0], sys.version_info[1], sys.executable, " ".join(sys.argv)
        )
    )


def starts(python):
    """Tell whether this interpreter runs; version managers put names of versions on the PATH that are switched off."""
    with open(os.devnull, "w") as nowhere:
        return subprocess.call([python, "-c", ""], stdout=nowhere, stderr=nowhere) == 0


def state_of(kind):
    """Return the fingerprint that an up-to-date environment of this kind ("run" or "dev") carries."""
    digest = hashlib.sha256()
    with open(os.path.join(ROOT, LOCKS[kind]), "rb") as file:
        digest.update(file.read())
    digest.update("{0} {1} {2}".format(ROOT, sys.version_info[:2], kind).encode())
    return digest.hexdigest()


def stamp_of(kind):
    """Return the path of the file that holds the fingerprint of the last finished set-up of this kind."""
    return os.path.join(FOLDER, "elbowroom-{0}.stamp".format(kind))


def is_ready(kind):
    """Tell whether the environment is there and was made from today's lock file."""
    try:
        with open(stamp_of(kind)) as file:
            return file.read() == state_of(kind) and os.path.exists(python_of_environment())
    except (IOError, OSError):
        return False


def create():
    """Make an empty environment with pip in it; without the standard library's venv, say what to install."""
    if os.path.islink(FOLDER):
        sys.exit("{0} is a link; elbowroom would empty what it leads to. Remove the link.".format(FOLDER))
    made = subprocess.call([sys.executable, "-m", "venv", "--clear", FOLDER])
    if made != 0:
        sys.exit(
            "Python could not make a virtual environment in {0}.\n"
            "On Debian and Ubuntu its venv module is a package of its own: apt install python3-venv".format(FOLDER)
        )


def set_up(kind):
    """Bring the environment up to date with the lock file of this kind, if it is not; return its interpreter."""
    need_python()
    python = python_of_environment()
    if is_ready(kind) or (kind == "run" and is_ready("dev")):
        return python
    sys.stderr.write("Setting up elbowroom in {0} (once, about a minute) ...\n".format(FOLDER))
    if not (is_ready("run") or is_ready("dev")):
        create()
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    project = ["--no-deps", "--no-build-isolation", "--editable", ROOT]
    for arguments in (["--require-hashes", "--requirement", os.path.join(ROOT, LOCKS[kind])], project):
        if subprocess.call(pip + arguments) != 0:
            sys.exit("Setting up failed: pip's message is above. Nothing else was changed; run this again to retry.")
    with open(stamp_of(kind), "w") as file:
        file.write(state_of(kind))
    return python


def hand_over(command):
    """Become the given command where the system allows it, so that signals and the exit code are its own."""
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":
        try:
            sys.exit(subprocess.call(command))
        except KeyboardInterrupt:
            sys.exit(130)
    os.execv(command[0], command)
