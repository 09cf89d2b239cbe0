"""`python -m jaxnlp`: what works from an installed wheel, without recipes or data sets."""

import os
import sys
from collections.abc import Callable
from typing import Any

import tyro

from jaxnlp.caches import use_compilation_cache
from jaxnlp.commands.attention import Attention, attention
from jaxnlp.commands.embed import Embed, embed
from jaxnlp.commands.export import Export, export
from jaxnlp.commands.generate import Generate, generate
from jaxnlp.commands.predict import Predict, predict
from jaxnlp.runs import DamagedCheckpointError, RunError
from jaxnlp.text import UnknownTokenError

COMMANDS: dict[str, tuple[type, Callable[[Any], None]]] = {
    "generate": (Generate, generate),
    "predict": (Predict, predict),
    "embed": (Embed, embed),
    "attention": (Attention, attention),
    "export": (Export, export),
}


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 a broken run, 2 a wrong command, or a file that cannot be read or written."""
    types: Any = {name: kind for name, (kind, _) in COMMANDS.items()}
    try:
        command = tyro.extras.subcommand_cli_from_dict(types, prog="python -m jaxnlp", args=arguments)
        act = next(action for kind, action in COMMANDS.values() if isinstance(command, kind))
        use_compilation_cache(None)
        act(command)
    except DamagedCheckpointError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except (RunError, UnknownTokenError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print()
        return 130
    except BrokenPipeError:  # the reader, `head` say, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
