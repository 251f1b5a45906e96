"""What commands of a shell do to files, told by their form."""

import json

import pytest

from elbowroom.context.compaction.files import files_in
from elbowroom.context.compaction.shell import files_of
from elbowroom.context.transcript import Transcript


@pytest.mark.parametrize(
    ("command", "written", "deleted"),
    [
        ("sed -i 's/^A = 1$/A = 2/' parts/p.py", ["parts/p.py"], []),
        ("sed -i.bak -e 's/a/b/' -e 's/c/d/' a.txt b.txt", ["a.txt", "b.txt"], []),
        ("perl -pi -e 's/a > b/c/' lib/x.pl", ["lib/x.pl"], []),
        ("sed -n 1,20p a.py; sed 's/a/b/' b.py", [], []),
        ("cat > src/a.py <<'EOF'\nif a > b:\n    it's = 1 >> c\nEOF\ntouch Makefile", ["src/a.py", "Makefile"], []),
        ("cat <<EOF >> a.md\n> quoted\nEOF\n", ["a.md"], []),
        ("make 2>&1 | tee -a 'build log.txt' > /dev/null", ["build log.txt"], []),
        ('echo x>a.txt && echo "a > b" 2> err.txt &> all.txt', ["a.txt", "err.txt", "all.txt"], []),
        ("grep '>' a.txt | sort -u", [], []),
        ("git mv old.py new.py && git rm -q gone.py", ["new.py"], ["old.py", "gone.py"]),
        ("sudo rm -rf build/ && cp -r a b/c", ["b/c"], ["build/"]),
        ("cd /srv/app && X=1 sed -i s/a/b/ conf.ini", ["/srv/app/conf.ini"], []),
        ("for f in *.py; do sed -i s/a/b/ $f; done; echo 1 > $OUT", [], []),
        ("echo 'not closed > x", [], []),
        ("python3 check.py 07 # > no.txt", [], []),
        ("cat < in.txt", [], []),
        ("", [], []),
    ],
)
def test_what_a_command_writes_and_deletes(command: str, written: list[str], deleted: list[str]) -> None:
    """Redirections and the usual programs are read, whatever stands in quotes or in a text within the command."""
    found = list(files_of(command))
    assert [path for path, deed in found if deed == "written"] == written
    assert [path for path, deed in found if deed == "deleted"] == deleted


@pytest.mark.parametrize("command", ["sed -i s/a/b/ a.py", ["bash", "-lc", "sed -i s/a/b/ a.py"], ["touch", "a.py"]])
@pytest.mark.parametrize("result", ["", "Error: no such file"])
def test_commands_of_clients_name_their_files(command: str | list[str], result: str) -> None:
    """However a client gives the command; one that has failed has done nothing."""
    function = {"name": "shell", "arguments": json.dumps({"command": command})}
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "function": function}]}
    groups = Transcript.of([call, {"role": "tool", "tool_call_id": "a", "content": result}]).groups
    assert list(files_in(groups, {})) == ([] if result else [("a.py", "written")])
