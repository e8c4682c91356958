"""The README's commands are found as written, and the files they name are there."""
import os
import shlex
import sys
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "scripts"))
import readme_commands  # noqa: E402

MARKDOWN = """Text with `scripts/inline.sh`.
```sh
# a comment
scripts/a.sh
trainer sample x.toml \\
  --prompt "In the beginning"
```
```text
not a command
```
```sh
scripts/b.sh
```
"""


class ReadmeCommands(unittest.TestCase):
    def test_come_from_sh_blocks_only_in_order(self):
        commands = readme_commands.commands_of(MARKDOWN)

        self.assertEqual([shlex.split(c)[0] for c in commands], ["scripts/a.sh", "trainer", "scripts/b.sh"])
        self.assertEqual(shlex.split(commands[1])[-1], "In the beginning")

    def test_name_files_of_the_repository_or_of_the_build(self):
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            commands = readme_commands.commands_of(file.read())

        for command in commands:
            for word in shlex.split(command):
                if word.startswith(("scripts/", "configs/")):
                    self.assertTrue(os.path.isfile(os.path.join(ROOT, word)), f"{word} of '{command}' does not exist")

    def test_are_the_two_that_a_newcomer_needs_first(self):
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            commands = readme_commands.commands_of(file.read())

        self.assertEqual(commands[:2], ["scripts/quickstart.sh", "scripts/test.sh"])


if __name__ == "__main__":
    unittest.main()
