"""`@run.toml` on the command line: a file of flags."""

from perc.errors import InputError
from perc.files import load_toml

MOST_FLAGS = 200


def expand_files(words: list[str]) -> list[str]:
    """Replaces each `@FILE` by the flags that its top-level keys spell.

    Later words win, so a flag after the file overrides it. Lists become comma lists,
    `true` a bare flag, and `trace` the positional argument.

    Raises:
        InputError: if a file cannot be read or is no TOML.
    """
    expanded = []
    for word in words:
        expanded += _flags(word[1:]) if word.startswith("@") else [word]
    return expanded


def _flags(path: str) -> list[str]:
    try:
        table = load_toml(path)
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(
            f"@{path}: {error}. Give a TOML file of flags, such as "
            'policies = ["lru", "perc"]'
        ) from None
    if len(table) > MOST_FLAGS:  # a name that no command has takes tyro a while
        raise InputError(
            f"@{path}: {len(table):,} flags, at most {MOST_FLAGS}; name one command's."
        )
    flags: list[str] = []
    for key, value in table.items():
        if isinstance(value, dict):
            raise InputError(f"@{path}: {key} is a table; flags are plain values.")
        if key == "trace":
            flags.append(str(value))
        elif value is True:
            flags.append(f"--{key}")
        elif value is not False:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            flags += [f"--{key}", text]
    return flags
