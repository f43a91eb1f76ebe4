"""Runs the command blocks of README.md and docs/ as a reader would type them.

| block | what happens |
|---|---|
| `sh` | each command runs in a terminal and must succeed; `sh fails`: must fail |
| `text` | each line must be in the output of the `sh` block before it; `text endless`: of the last endless command |
| `console` | lines after `$ ` are commands, the others are exactly what they print; streams end after it |
| `python` | a program; a first line `# NAME.py` saves it under that name instead |
| `sh endless`, `python endless` | the last command runs until the page ends |
| `properties`, `ini`, `json`, `yaml` | saved under the name in the first line (`# NAME`), if there is one |
| without a language | a drawing or a format: must not have commands |

In expected output, `…` is any text. Times, ids and other values that differ from run to run are not compared.
"""
