"""Outputs of programs that failed, in the form that their documentation shows, with the words that say what failed.

None of them is recorded, and none of these programs is among the recorded outputs. `usual` is what the program prints
again and again while all is well, with a number in it; `failed` is what it prints where something is not.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Exam:
    """One output: what stands before and after the failure, the failure, the end, and the words that "
    "have to be seen."""

    name: str
    usual: str
    failed: str
    words: tuple[str, ...]
    end: str = ""

    def output(self, lines: int) -> str:
        """Return the output with so many usual lines before the failure, and after it."""
        before = [self.usual.format(n=number) for number in range(lines)]
        after = [self.usual.format(n=number) for number in range(lines, 2 * lines)]
        return "\n".join([*before, self.failed, *after, *([self.end] if self.end else [])])


EXAMS = (
    Exam(
        "dotnet build",
        "  Shop.Part{n} -> /src/Part{n}/bin/Debug/net8.0/Shop.Part{n}.dll",
        "/src/Cart/Till.cs(41,17): error CS1061: 'Till' does not contain a definition for 'Drawer' "
        "[/src/Cart/Cart.csproj]",
        ("Till.cs(41,17)", "CS1061", "'Drawer'"),
        "\nBuild FAILED.\n    0 Warning(s)\n    1 Error(s)\n\nTime Elapsed 00:00:09.41",
    ),
    Exam(
        "dotnet test",
        "  Passed Shop.Tests.Case{n} [2 ms]",
        "  Failed Shop.Tests.Rounds [12 ms]\n  Error Message:\n   Assert.Equal() Failure\nExpected: 1.01\nActual:   1\n"
        "  Stack Trace:\n     at Shop.Tests.Rounds() in /src/Tests/TillTests.cs:line 88",
        ("Shop.Tests.Rounds", "Expected: 1.01", "TillTests.cs:line 88"),
        "\nFailed!  - Failed:     1, Passed:   800, Skipped:     0, Total:   801, Duration: 2 s - Tests.dll (net8.0)",
    ),
    Exam(
        "swift build",
        "[{n}/900] Compiling Harbour Pier{n}.swift",
        "/src/Sources/Harbour/Ferry.swift:17:22: error: value of type 'Ferry' has no member 'bell'\n"
        "        return ferry.bell\n               ~~~~~ ^~~~",
        ("Ferry.swift:17:22", "has no member 'bell'"),
        "error: fatalError",
    ),
    Exam(
        "swift test",
        "Test Case 'PierTests.testPier{n}' passed (0.001 seconds)",
        '/src/Tests/PierTests.swift:31: error: PierTests.testDepth : XCTAssertEqual failed: ("3") is not '
        'equal to ("4")\n'
        "Test Case 'PierTests.testDepth' failed (0.004 seconds)",
        ("PierTests.swift:31", "XCTAssertEqual failed", "testDepth"),
        "Executed 801 tests, with 1 failure (0 unexpected) in 1.204 (1.290) seconds",
    ),
    Exam(
        "phpunit",
        "...............................................................  {n} / 900",
        "There was 1 failure:\n\n1) Shop\\CartTest::testTotalHasTax\nFailed asserting that 5.7 matches "
        "expected 35.7.\n\n"
        "/src/tests/CartTest.php:24",
        ("testTotalHasTax", "5.7 matches expected 35.7", "CartTest.php:24"),
        "\nFAILURES!\nTests: 900, Assertions: 1204, Failures: 1.",
    ),
    Exam(
        "php",
        "<li>row {n}</li>",
        "PHP Fatal error:  Uncaught TypeError: total(): Argument #1 ($items) must be of type array, null "
        "given, called in "
        "/src/cart.php on line 9 and defined in /src/lib.php:3",
        ("must be of type array, null given", "/src/cart.php on line 9"),
    ),
    Exam(
        "composer",
        "  - Locking acme/part-{n} (1.4.{n})",
        "Your requirements could not be resolved to an installable set of packages.\n\n  Problem 1\n"
        "    - Root composer.json requires acme/ferry ^9.0, found acme/ferry[1.0.0, ..., 2.1.0] but it "
        "does not match the "
        "constraint.",
        ("could not be resolved", "requires acme/ferry ^9.0"),
    ),
    Exam(
        "rspec",
        "  keeps entry {n} of the log",
        "Failures:\n\n  1) Log counts the passengers\n     Failure/Error: expect(log.passengers).to eq(40)\n\n"
        "       expected: 40\n            got: 39\n     # ./spec/log_spec.rb:52:in `block (2 levels) in "
        "<top (required)>'",
        ("counts the passengers", "expected: 40", "log_spec.rb:52"),
        "Finished in 1.9 seconds\n901 examples, 1 failure\n\nFailed examples:\n\nrspec ./spec/log_spec.rb:51",
    ),
    Exam(
        "ruby",
        "read record {n}",
        "log.rb:14:in `fetch': key not found: :pier (KeyError)\n\tfrom log.rb:14:in `depart'\n\tfrom "
        "main.rb:3:in `<main>'",
        ("key not found: :pier (KeyError)", "log.rb:14"),
    ),
    Exam(
        "rubocop",
        "Inspecting file {n} ... no offenses",
        "app/pier.rb:12:5: C: Style/IfUnlessModifier: Favor modifier if usage when having a single-line body.\n"
        "app/pier.rb:40:3: E: Lint/Syntax: unexpected token kEND",
        ("app/pier.rb:40:3", "unexpected token kEND"),
        "900 files inspected, 2 offenses detected",
    ),
    Exam(
        "bundler",
        "Using part_{n} 1.0.{n}",
        "Could not find gem 'ferry (>= 9)' in rubygems repository or installed locally.",
        ("Could not find gem 'ferry (>= 9)'",),
        "exit status 7",
    ),
    Exam(
        "cmake",
        "-- Looking for function_{n} - found",
        'CMake Error at CMakeLists.txt:12 (find_package):\n  By not providing "FindHarbour.cmake" in '
        "CMAKE_MODULE_PATH this "
        'project has\n  asked CMake to find a package configuration file provided by "Harbour"',
        ("CMakeLists.txt:12 (find_package)", "FindHarbour.cmake"),
        "-- Configuring incomplete, errors occurred!",
    ),
    Exam(
        "ctest",
        "  {n}/900 Test #{n}: pier_{n} ......................   Passed    0.01 sec",
        "451/900 Test #451: tide_table ....................***Failed    0.02 sec\ntide_table: high water 4.1 != 4.7 m",
        ("tide_table", "high water 4.1 != 4.7 m"),
        "99% tests passed, 1 tests failed out of 900\n\nThe following tests FAILED:\n\t451 - tide_table (Failed)",
    ),
    Exam(
        "ninja",
        "[{n}/900] Building CXX object src/part{n}.o",
        "FAILED: src/bell.o\n/usr/bin/c++ -c ../src/bell.cpp -o src/bell.o\n../src/bell.cpp:9:3: error: "
        "use of undeclared "
        "identifier 'ring'",
        ("FAILED: src/bell.o", "bell.cpp:9:3", "undeclared identifier 'ring'"),
        "ninja: build stopped: subcommand failed.",
    ),
    Exam(
        "bazel",
        "INFO: From Compiling part/{n}.cc",
        "ERROR: /src/dock/BUILD:7:11: Compiling dock/crane.cc failed: (Exit 1): gcc failed: error executing command\n"
        "dock/crane.cc:21:10: fatal error: dock/hook.h: No such file or directory",
        ("/src/dock/BUILD:7:11", "dock/hook.h: No such file"),
        "INFO: Elapsed time: 12.4s, Critical Path: 3.1s\nFAILED: Build did NOT complete successfully",
    ),
    Exam(
        "kubectl apply",
        "configmap/part-{n} unchanged",
        'Error from server (Forbidden): error when creating "deploy.yaml": deployments.apps is '
        'forbidden: User "dev" cannot '
        'create resource "deployments" in API group "apps" in the namespace "port"',
        ("Forbidden", 'User "dev" cannot create resource "deployments"'),
    ),
    Exam(
        "helm",
        "coalesce.go:286: value {n} merged",
        'Error: UPGRADE FAILED: cannot patch "ferry" with kind Deployment: spec.selector: Invalid value: '
        "field is immutable",
        ("UPGRADE FAILED", "field is immutable"),
    ),
    Exam(
        "ansible-playbook",
        "ok: [host{n}]",
        'fatal: [pier9]: FAILED! => {"changed": false, "msg": "No package matching \'harbourd\' is available"}',
        ("fatal: [pier9]", "No package matching 'harbourd'"),
        "PLAY RECAP ****\npier9 : ok=4 changed=0 unreachable=0 failed=1 skipped=0",
    ),
    Exam(
        "docker compose",
        " Container part-{n}  Started",
        "Error response from daemon: driver failed programming external connectivity on endpoint web: "
        "Bind for 0.0.0.0:8080 "
        "failed: port is already allocated",
        ("Bind for 0.0.0.0:8080", "port is already allocated"),
    ),
    Exam(
        "curl",
        "  {n} 1024k    {n} 1024k    0     0  2048k      0  0:00:01  0:00:01 --:--:-- 2048k",
        "curl: (60) SSL certificate problem: unable to get local issuer certificate",
        ("curl: (60)", "unable to get local issuer certificate"),
    ),
    Exam(
        "wget",
        "{n}00K .......... .......... .......... .......... ..........  1% 2.1M 9s",
        "2026-11-02 10:12:09 ERROR 404: Not Found.",
        ("ERROR 404: Not Found",),
    ),
    Exam(
        "rsync",
        "photos/{n}.jpg",
        'rsync: [receiver] write failed on "/backup/photos/77.jpg": No space left on device (28)',
        ("/backup/photos/77.jpg", "No space left on device"),
        "rsync error: error in file IO (code 11) at receiver.c(380) [receiver=3.2.7]",
    ),
    Exam(
        "ssh",
        "debug1: Offering public key: /home/dev/.ssh/key_{n} ED25519",
        "dev@pier9: Permission denied (publickey,password).",
        ("dev@pier9: Permission denied",),
    ),
    Exam(
        "mysql",
        "Query OK, {n} rows affected (0.01 sec)",
        "ERROR 1452 (23000) at line 451: Cannot add or update a child row: a foreign key constraint "
        "fails (`port`.`trips`)",
        ("ERROR 1452 (23000) at line 451", "foreign key constraint fails"),
    ),
    Exam(
        "redis-cli",
        "OK {n}",
        "(error) MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
        ("MISCONF", "unable to persist to disk"),
    ),
    Exam(
        "mix test",
        "  * test part {n} (2.1ms) [L#{n}]",
        "  1) test ferry departs (HarbourTest)\n     test/harbour_test.exs:19\n     Assertion with == failed\n"
        "     code:  assert depart(:ferry) == :ok\n     left:  {:error, :fog}\n     right: :ok",
        ("test/harbour_test.exs:19", "{:error, :fog}"),
        "Finished in 1.2 seconds\n901 tests, 1 failure",
    ),
    Exam(
        "ghc",
        "[{n} of 900] Compiling Part{n}   ( src/Part{n}.hs, dist/Part{n}.o )",
        "src/Bell.hs:14:9: error: [GHC-83865]\n    • Couldn't match expected type ‘Int’ with actual type ‘[Char]’",
        ("src/Bell.hs:14:9", "Couldn't match expected type ‘Int’"),
    ),
    Exam(
        "sbt",
        "[info] compiling part {n} ...",
        "[error] /src/main/scala/Pier.scala:22:15: type mismatch;\n[error]  found   : String\n[error]  required: Int",
        ("Pier.scala:22:15: type mismatch", "required: Int"),
        "[error] Total time: 9 s, completed",
    ),
    Exam(
        "kotlinc",
        "info: kotlinc part {n}",
        "src/Ferry.kt:8:21: error: unresolved reference: departure",
        ("src/Ferry.kt:8:21", "unresolved reference: departure"),
    ),
    Exam(
        "deno test",
        "part {n} ... ok (1ms)",
        "rounds ... FAILED (3ms)\n\n ERRORS\n\nrounds => ./till_test.ts:4:6\nerror: AssertionError: "
        "Values are not equal.\n\n"
        "-   1\n+   1.01",
        ("rounds ... FAILED", "./till_test.ts:4:6", "Values are not equal"),
        "FAILED | 900 passed | 1 failed (40ms)\n\nerror: Test failed",
    ),
    Exam(
        "playwright",
        "  ✓  {n} [chromium] › part{n}.spec.ts:3:5 › opens (1.1s)",
        "  1) [chromium] › login.spec.ts:12:5 › signs in ─────────\n\n    Error: "
        "expect(locator).toBeVisible() failed\n\n"
        "    Locator: getByText('Welcome')\n    Timeout: 5000ms\n\n      at /src/login.spec.ts:15:45",
        ("login.spec.ts:12:5", "toBeVisible() failed", "getByText('Welcome')"),
        "  1 failed\n    [chromium] › login.spec.ts:12:5 › signs in\n  900 passed (1.4m)",
    ),
    Exam(
        "shellcheck",
        "checked part{n}.sh",
        "In deploy.sh line 12:\nrm -rf $dir/*\n       ^--^ SC2086 (info): Double quote to prevent "
        "globbing and word splitting.\n"
        '       ^----^ SC2115 (warning): Use "${var:?}" to ensure this never expands to /* .',
        ("In deploy.sh line 12", "SC2115"),
        "Process exited with code 1",
    ),
    Exam(
        "flake8",
        "checking part_{n}.py",
        "./harbour/tide.py:88:80: E501 line too long (91 > 79 characters)\n./harbour/tide.py:90:5: F821 "
        "undefined name 'moon'",
        ("tide.py:90:5", "F821 undefined name 'moon'"),
        '{"exit_code": 1}',
    ),
    Exam(
        "pylint",
        "-- module part_{n} analysed",
        "harbour/bell.py:31:11: E1101: Instance of 'Bell' has no 'rign' member (no-member)",
        ("harbour/bell.py:31:11", "has no 'rign' member"),
        "Your code has been rated at 9.91/10",
    ),
    Exam(
        "apt-get",
        "Get:{n} deb bookworm/main amd64 part-{n} amd64 1.0 [12 kB]",
        "E: Unable to locate package harbourd\nE: Couldn't find any package by regex 'harbourd'",
        ("Unable to locate package harbourd",),
    ),
    Exam(
        "pdflatex",
        "(/usr/share/texmf/tex/latex/part{n}/part{n}.sty)",
        "! Undefined control sequence.\nl.212 \\ferrry\n              {Nordsee}",
        ("Undefined control sequence", "l.212 \\ferrry"),
        "Output written on log.pdf (12 pages, 90210 bytes).",
    ),
    Exam(
        "ffmpeg",
        "frame= {n} fps= 25 q=28.0 size= {n}kB time=00:00:0{n} bitrate= 512.0kbits/s",
        "[mov,mp4,m4a @ 0x55d0] moov atom not found\nferry.mp4: Invalid data found when processing input",
        ("moov atom not found", "ferry.mp4: Invalid data found"),
    ),
    Exam(
        "webpack",
        "asset part{n}.js 12 KiB [emitted]",
        "ERROR in ./src/pier.js 3:0-29\nModule not found: Error: Can't resolve './crane' in '/src/src'",
        ("./src/pier.js 3:0-29", "Can't resolve './crane'"),
        "webpack 5.90.0 compiled with 1 error in 812 ms",
    ),
    Exam(
        "vite build",
        "dist/assets/part{n}.js   1.2 kB │ gzip: 0.6 kB",
        'error during build:\nsrc/pier.ts (4:9): "crane" is not exported by "src/dock.ts", imported by "src/pier.ts".',
        ("src/pier.ts (4:9)", '"crane" is not exported by'),
    ),
    Exam(
        "golangci-lint",
        'level=info msg="[runner] linter {n} took 2ms"',
        "dock/crane.go:44:2: ineffectual assignment to err (ineffassign)\n\terr = lift(load)\n\t^",
        ("dock/crane.go:44:2", "ineffectual assignment to err"),
        "Exit code: 1",
    ),
    Exam(
        "nginx",
        "nginx: [notice] read part{n}.conf",
        'nginx: [emerg] unknown directive "proxy_pas" in /etc/nginx/sites-enabled/port:14',
        ('unknown directive "proxy_pas"', "sites-enabled/port:14"),
        "nginx: configuration file /etc/nginx/nginx.conf test failed",
    ),
    Exam(
        "zig build",
        "[{n}/900] zig build-obj part{n} Debug native",
        "src/main.zig:18:13: error: expected type 'u32', found '*const [4:0]u8'\n    const n: u32 = \"four\";",
        ("src/main.zig:18:13", "expected type 'u32'"),
        "error: the following command failed with 1 compilation errors",
    ),
    Exam(
        "Rscript",
        "[1] {n} rows read",
        "Error in lm.fit(x, y, offset = offset) : \n  NA/NaN/Inf in 'y'\nCalls: fit -> lm -> lm.fit",
        ("Error in lm.fit", "NA/NaN/Inf in 'y'"),
        "Execution halted",
    ),
)
