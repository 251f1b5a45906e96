#!/bin/sh
# Installs elbowroom for the one who runs this, without an administrator, and takes it back.
#
#   sh install.sh                 installs, or brings what is installed up to date
#   sh install.sh FILE.whl        from this file; other words that pip understands do as well
#   sh install.sh --autostart     and starts it at every log-in; --no-autostart does not ask
#   sh install.sh --uninstall     removes all of it but the data folder
#
# All of it is in one folder, ~/.local/lib/elbowroom (or ELBOWROOM_HOME), and one link, ~/.local/bin/elbowroom.
# Where there is no Python from 3.11 on, uv brings its own into that folder; where there is no uv, uv's installer
# brings that. Neither git nor a compiler is needed.
set -eu

home=${ELBOWROOM_HOME:-$HOME/.local/lib/elbowroom}
link=$HOME/.local/bin/elbowroom
mark=$home/made-by-install.sh
program=$home/environment/bin/elbowroom
python=$home/environment/bin/python

say() { printf '%s\n' "$*"; }
fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}

# What to install: what was named, else a wheel or the sources beside this file, else the published package.
source_of() {
    case $0 in
        */install.sh | install.sh) folder=$(cd "$(dirname "$0")" && pwd) ;;
        *) folder= ;;
    esac
    if [ -n "$folder" ]; then
        for file in "$folder"/elbowroom-*.whl; do
            if [ -f "$file" ]; then newest=$file; fi
        done
        if [ -n "${newest:-}" ]; then
            say "$newest"
            return
        fi
        if grep -q '^name = "elbowroom"' "$folder/pyproject.toml" 2>/dev/null; then
            say "$folder"
            return
        fi
    fi
    say elbowroom
}

# The newest Python from 3.11 on that can make environments; nothing where there is none.
python_here() {
    for name in python3.14 python3.13 python3.12 python3.11 python3; do
        if "$name" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
}

# uv as it is on the PATH, else one of our own beside the program, which changes no file of the shell's.
uv_here() {
    if command -v uv >/dev/null; then
        command -v uv
        return
    fi
    if [ ! -x "$home/uv/uv" ]; then
        if command -v curl >/dev/null; then
            fetch='curl --proto =https -LsSf'
        elif command -v wget >/dev/null; then
            fetch='wget -qO-'
        else
            fail 'There is no Python from 3.11 on, and neither curl nor wget to bring one. Install one of the three.'
        fi
        $fetch https://astral.sh/uv/install.sh | UV_UNMANAGED_INSTALL="$home/uv" sh >&2
    fi
    say "$home/uv/uv"
}

make_environment() {
    found=$(python_here)
    if [ -n "$found" ] && [ -z "${ELBOWROOM_USE_UV:-}" ]; then
        say "Installing with $found into $home ..."
        "$found" -m venv --clear "$home/environment"
        "$python" -m pip --disable-pip-version-check --no-cache-dir --quiet install --no-compile "$@"
    else
        say "Installing with uv, which brings its own Python, into $home ..."
        uv=$(uv_here)
        UV_PYTHON_INSTALL_DIR=$home/python UV_CACHE_DIR=$home/cache
        export UV_PYTHON_INSTALL_DIR UV_CACHE_DIR
        "$uv" venv --quiet --clear --python '>=3.11' "$home/environment"
        "$uv" pip install --quiet --python "$python" "$@"
        rm -rf "$home/cache"
    fi
}

# Folders as the program itself names them, so that both agree on every system.
settings_folder() { (unset ELBOWROOM_CONFIG && dirname "$("$program" config path)"); }
data_folder() { "$python" -c 'import os; from elbowroom.settings.fields import data_dir; print(data_dir(os.environ))'; }

install() {
    if [ -d "$home" ] && [ ! -e "$mark" ] && [ -n "$(ls -A "$home")" ]; then
        fail "$home is there already, and not from here. Move it away, or name another folder with ELBOWROOM_HOME."
    fi
    mkdir -p "$home" "$(dirname "$link")"
    : >"$mark"
    if [ -e "$link" ] && [ "$(readlink "$link" 2>/dev/null)" != "$program" ]; then
        fail "$link is there already, and not from here. Move it away, and run this again."
    fi
    make_environment "$@"
    ln -sf "$program" "$link"
    settings=$(settings_folder) data=$(data_folder)
    if [ -d "$data/settings" ] && [ ! -e "$settings" ]; then
        mkdir -p "$(dirname "$settings")"
        mv "$data/settings" "$settings"
        say "Your settings of before are back in $settings."
    fi
    say "$("$program" --version) is installed: $link"
    case :$PATH: in
        *:"$(dirname "$link")":*) ;;
        *) say "Your PATH does not have $(dirname "$link"). Add this to your shell's profile: export PATH=\"\$HOME/.local/bin:\$PATH\"" ;;
    esac
    if [ "$autostart" = ask ]; then
        autostart=no
        if [ -t 0 ] && [ -t 1 ]; then
            printf 'Start it whenever you log in? [y/N] '
            read -r answer
            case $answer in [yY]*) autostart=yes ;; esac
        fi
    fi
    if [ "$autostart" = yes ]; then
        "$program" autostart on || say "It does not start at log-in; the reason is above. It is installed all the same."
    else
        say "Start it: elbowroom serve     See it without a model: elbowroom demo     At log-in: elbowroom autostart on"
    fi
    say "Take it back: sh install.sh --uninstall"
}

# Only what this script has made: a folder that was named by mistake keeps what else is in it.
remove() {
    rm -rf "$home/environment" "$home/python" "$home/cache" "$home/uv" "$mark"
    rmdir "$home" 2>/dev/null || say "$home has other files in it, which stay."
}

uninstall() {
    [ -e "$mark" ] || fail "There is no installation of this script's in $home."
    if [ ! -x "$program" ]; then
        remove
        say "Removed what was left of an installation in $home."
        return
    fi
    if ! "$program" autostart off; then
        fail "It is still started at log-in; the reason is above. Nothing was removed."
    fi
    settings=$(settings_folder) data=$(data_folder)
    if [ -d "$settings" ] && [ "$settings" != "$data" ]; then
        mkdir -p "$data"
        [ ! -e "$data/settings" ] || mv "$data/settings" "$data/settings.$(date +%Y%m%d%H%M%S)"
        mv "$settings" "$data/settings"
    fi
    remove
    [ "$(readlink "$link" 2>/dev/null)" != "$program" ] || rm -f "$link"
    rm -f "$HOME/Library/Logs/elbowroom.log"
    for parent in "$(dirname "$home")" "$(dirname "$link")"; do rmdir "$parent" 2>/dev/null || true; done
    say "Removed $home and $link."
    if [ -d "$data" ]; then
        say "Left: $data, with your conversations and, in settings/, your settings. Delete that folder to have nothing left."
    fi
    say "What \`elbowroom connect\` and \`elbowroom obsidian\` have written into other programs is theirs now, and stays."
}

autostart=ask
what=install
while [ $# -gt 0 ]; do
    case $1 in
        --uninstall) what=uninstall ;;
        --autostart) autostart=yes ;;
        --no-autostart) autostart=no ;;
        -h | --help)
            sed -n '2,/^set/s/^# \{0,1\}//p' "$0"
            exit 0
            ;;
        --*) fail "There is no option $1; --help shows those there are." ;;
        *) break ;;
    esac
    shift
done
if [ $what = uninstall ]; then
    uninstall
else
    [ $# -gt 0 ] || set -- "$(source_of)"
    install "$@"
fi
