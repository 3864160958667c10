"""What is read of pages."""

from regnum_testing.page_commands import Shown, commands, missing, python

PAGE = """
```console
$ regnum status
a  1,200  ██▏  x
$ true
```

```sh
make install
```

```python
x = 1
```
"""


def test_commands_and_code_of_a_page() -> None:
    assert list(commands(PAGE)) == [
        Shown(command="regnum status", output=("a  1,200  ██▏  x",)),
        Shown(command="true", output=()),
    ]
    assert python(PAGE) == "x = 1\n"


def test_what_differs_from_run_to_run_does_not_count() -> None:
    (status, _) = commands(PAGE)
    assert missing(status, "head\na 7.5 █ x\n") == []
    (report,) = commands("```console\n$ x\nreport: /home/you/report.html\n```\n")
    assert missing(report, "report: /tmp/x-7/y/report.html\n") == []
    assert missing(status, "a 2.4 ±14.6 █ x\n") == [], "how far clocks differ is known when it runs"
    assert missing(status, "b 7.5 █ x\n") == ["a  1,200  ██▏  x"]
