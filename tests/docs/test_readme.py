"""The README works line by line, for somebody who has nothing but the checkout."""

import shutil

import pytest
from tools.readme import (
    FULL,
    QUICK,
    ROOT,
    Shell,
    borrow_environment,
    commands,
    copy_checkout,
    follow,
    fresh_shell,
    steps,
    treatment_of,
)

README = (ROOT / "README.md").read_text()


def test_commands_keep_their_here_documents_and_continued_lines_and_lose_their_comments():
    text = (
        "```bash\n# first\ncat > a <<'CSV'\nx # 1\nCSV\nrun a \\\n  b     # why\n\nsay '#1'\n```\n```python\nno\n```\n"
    )
    assert commands(text) == ["cat > a <<'CSV'\nx # 1\nCSV", "run a \\\n  b     # why", "say '#1'"]


def test_every_command_of_the_readme_is_run_or_has_a_reason_not_to():
    assert len(commands(README)) >= 5
    for command in commands(README):
        treatment_of(command)


def test_what_a_python_block_prints_is_compared(tmp_path):
    readme = "```bash\ncat > a <<'X'\nX\n```\n```python\nprint(1)\n```\n```text\n{}\n```\n"
    assert [step.printed for step in steps(readme.format(1))] == [None, "1\n"]
    shell = Shell(tmp_path, tmp_path)
    follow(readme.format(1), shell, variant=QUICK, timeout_s=10)
    with pytest.raises(AssertionError, match="must print\n2\n\ngot\n1"):
        follow(readme.format(2), shell, variant=QUICK, timeout_s=10)


def test_a_command_without_a_row_is_an_error():
    with pytest.raises(LookupError, match="'airprune fly'; give it a row"):
        treatment_of("airprune fly")


def test_variables_and_folder_carry_over_and_a_failing_command_is_seen(tmp_path):
    (tmp_path / "inner").mkdir()
    shell = Shell(tmp_path, tmp_path)
    shell.run("cd inner; export COLOUR='dark red'", timeout_s=10)
    assert shell.run('echo "$COLOUR"; pwd', timeout_s=10).split("\n")[:2] == ["dark red", str(tmp_path / "inner")]
    assert "USER" not in shell.run("env", timeout_s=10)
    with pytest.raises(AssertionError, match="false"):
        shell.run("false", timeout_s=10)


def test_the_readme_works_line_by_line(tmp_path):
    """Small sizes, in an environment borrowed from these tests; the slow test below makes its own."""
    checkout = copy_checkout(tmp_path / "airprune", built=True)
    borrow_environment(checkout)
    shell = Shell(checkout, tmp_path, PYTHONPATH=str(checkout / "src"), OMP_WAIT_POLICY="passive")
    follow(README, shell, variant=QUICK, timeout_s=120)


@pytest.mark.slow
def test_the_readme_works_on_a_fresh_machine(tmp_path):
    """With an environment of its own, made by the first command, and Fashion-MNIST fetched; ten minutes."""
    checkout = copy_checkout(tmp_path / "airprune", built=False)
    follow(README, fresh_shell(checkout, tmp_path), variant=FULL, timeout_s=1800)
    shutil.rmtree(checkout / ".venv")  # more than a gigabyte, and pytest keeps its folders
