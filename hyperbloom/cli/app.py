"""What all commands share: options before or after the command's name, errors, exit codes.

Commands raise what went wrong; `Root.main` turns it into one sentence on standard error and an exit
code. Modules of `hyperbloom.cli` import only click and small modules at their top, because the
start of a short command is most of its time.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from hyperbloom.cli.output import (
    Output,
    OutputClosed,
    OutputLost,
    Progress,
    say,
    say_problem,
    tell_as_json,
    tells_as_json,
)
from hyperbloom.errors import ErrorKind, HyperbloomError
from hyperbloom.exit_codes import EXIT_MEANINGS, ExitCode
from hyperbloom.units import parse_duration

if TYPE_CHECKING:
    from hyperbloom.client.client import Client
    from hyperbloom.config import Config

__all__ = ["App", "Command", "Group", "Root", "app_of", "exit_with", "full_option", "pass_app"]

#: Seconds a node is given for an answer where nothing else is said.
DEFAULT_TIMEOUT = 30.0
CONFIG_VARIABLE = "HYPERBLOOM_CONFIG"
#: Of the node that the system runs, as packages install it.
SYSTEM_CONFIG = Path("/etc/hyperbloom/hyperbloom.toml")
_META = "hyperbloom.options"
#: Arguments from this length on are kept out of cli.log: shorter ones are options and small words.
LEAST_HIDDEN = 16


class Seconds(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A duration (30d, 12h, 45m, 90s) or a plain number of seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Called by click."""
        if isinstance(value, float):
            return value
        try:
            seconds = float(value)
        except ValueError:
            try:
                return parse_duration(value)
            except ValueError as error:
                self.fail(str(error), param, ctx)
        if not 0 < seconds < float("inf"):
            self.fail("a duration is above 0", param, ctx)
        return seconds


class App:
    """One call of the command: its options, its output, and the node it is about."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._config: Config | None = None
        self.out = Output(as_json=bool(options.get("json")), full=bool(options.get("full")))

    @property
    def config_path(self) -> Path:
        """The configuration file: -c, else the environment, else one in this folder, else the
        system's, where the user may read it.

        Raises `click.UsageError` for one in this folder that others may have put there.
        """
        given = self._options.get("config")
        if given:
            return Path(given)
        variable = os.environ.get(CONFIG_VARIABLE)
        if variable:
            # A relative one is as good as none: which file it is, the current folder says.
            return Path(variable) if os.path.isabs(variable) else _found(Path(variable))
        if Path("hyperbloom.toml").is_file():
            return _found(Path("hyperbloom.toml"))
        # A folder that may not be entered is no error: its node is not this user's.
        if os.access(SYSTEM_CONFIG, os.R_OK):
            return SYSTEM_CONFIG
        raise click.UsageError(
            f"say which node: give -c DIR/hyperbloom.toml, or set {CONFIG_VARIABLE}"
        )

    @property
    def config(self) -> Config:
        """The configuration; raises `ConfigError`."""
        from hyperbloom.config import load_config

        if self._config is None:
            self._config = load_config(self.config_path)
        return self._config

    def timeout(self, default: float | None = DEFAULT_TIMEOUT) -> float | None:
        """--timeout in seconds, else `default`."""
        given: float | None = self._options.get("timeout")
        return default if given is None else given

    def client(self, default_timeout: float | None = DEFAULT_TIMEOUT) -> Client:
        """A client of the running node."""
        from hyperbloom.client.client import Client

        return Client(
            self.config.control_socket,
            timeout=self.timeout(default_timeout),
            run_command=self.command("run"),
        )

    def progress(self, text: str, *, hidden: bool = False) -> Progress:
        """The line that says how far this command is: none under --json and --quiet."""
        quiet = bool(self._options.get("quiet")) or self.out.as_json
        return Progress(text, hidden=hidden or quiet)

    def ask_first(self, question: Callable[[], str], *, yes: bool) -> None:
        """Have a person agree to what cannot be taken back; `yes` (--yes) has agreed already.

        Ends the command with exit code 1 where the answer is no. Raises `click.UsageError` where
        standard input is no terminal: nobody can be asked there.
        """
        if yes:
            return
        if not sys.stdin.isatty():
            raise click.UsageError(
                "nothing was done: this asks first, and standard input is no terminal; give --yes "
                "to do it without being asked"
            )
        if not click.confirm(question(), err=True):
            raise click.ClickException("nothing was changed")

    def command(self, *words: str) -> str:
        """A command about the same node, to be pasted."""
        given = self._options.get("config")
        return shlex.join(["hyperbloom", *words, *(["-c", str(given)] if given else [])])


def _found(path: Path) -> Path:
    """A configuration that this folder holds; raises `click.UsageError` where others wrote it."""
    from hyperbloom.cli.found_config import why_not_found

    file = path / "hyperbloom.toml" if path.is_dir() else path
    problem = why_not_found(file) if os.path.lexists(file) else None
    if problem is not None:
        raise click.UsageError(
            f"{path} in this folder is not taken by itself, for {problem}: whoever wrote it would "
            "choose the node, and the programs that `run` starts. If that is the node you mean, "
            f"name it: `-c {shlex.quote(str(path))}`"
        )
    return path


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value is not None and value is not False:
        ctx.meta.setdefault(_META, {})[param.name] = value


def _common_options(*, config: bool = True, timeout: bool = True) -> list[click.Parameter]:
    options: list[click.Parameter] = []
    if config:
        options.append(
            click.Option(
                ["-c", "--config"],
                type=click.Path(),
                metavar="FILE",
                expose_value=False,
                callback=_remember,
                help=f"Configuration of the node; else from {CONFIG_VARIABLE}.",
            )
        )
    if timeout:
        options.append(
            click.Option(
                ["--timeout"],
                type=Seconds(),
                metavar="DURATION",
                expose_value=False,
                callback=_remember,
                help="Longest wait for an answer of the node, such as 10s.",
            )
        )
    options.append(
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=_remember,
            help="Show no progress.",
        )
    )
    options.append(
        click.Option(
            ["--json"],
            is_flag=True,
            expose_value=False,
            callback=_remember,
            help="Print JSON.",
        )
    )
    return options


def full_option(command: Any) -> Any:
    """--full."""
    return click.option(
        "--full",
        is_flag=True,
        expose_value=False,
        callback=_remember,
        help="Show keys with all their digits.",
    )(command)


def _first_sentence(command: click.Command) -> str:
    """A command's line in the help of its group, whole: click would cut it to the line's width."""
    paragraph, _, _ = (command.help or "").partition("\n\n")
    return " ".join(paragraph.split())


class Command(click.Command):
    """A command with the common options after its name."""

    def __init__(
        self, *args: Any, config_option: bool = True, timeout_option: bool = True, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.params += _common_options(config=config_option, timeout=timeout_option)

    def get_short_help_str(self, limit: int = 45) -> str:
        """Called by click."""
        return _first_sentence(self)


class Group(click.Group):
    """A group of commands with the common options after its name too."""

    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _common_options()

    def get_short_help_str(self, limit: int = 45) -> str:
        """Called by click."""
        return _first_sentence(self)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of definition, which is the order in which they are needed."""
        return list(self.commands)


Group.group_class = Group


def app_of(ctx: click.Context) -> App:
    """The `App` of a call of the command."""
    app: App = ctx.find_root().meta.setdefault("hyperbloom.app", App(ctx.meta.get(_META, {})))
    return app


def pass_app(command: Any) -> Any:
    """Hands the `App` of this call to a command as its first argument."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return command(app_of(click.get_current_context()), *args, **kwargs)

    call.__name__, call.__doc__ = command.__name__, command.__doc__
    call.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    return call


def exit_with(code: ExitCode) -> NoReturn:
    """Ends the command with an exit code and no message."""
    raise click.exceptions.Exit(int(code))


class Interrupted(Exception):
    """Ctrl-C."""


class Root(Group):
    """The whole command line: here every error becomes a sentence and an exit code.

    is_process: it is the process's own command line that runs.
    """

    is_process = False

    _named = "hyperbloom"

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Runs the command line and leaves by `SystemExit`."""
        self.is_process = args is None
        given = list(sys.argv[1:] if args is None else args)
        self._named = _command_words(self, given)
        # A command line that cannot be read may ask for JSON, too.
        ends = given.index("--") if "--" in given else len(given)
        tell_as_json("--json" in given[:ends])
        try:
            code = self._run(args, prog_name, complete_var, extra)
        except OutputClosed:
            code = ExitCode.OUTPUT_CLOSED
        except (KeyboardInterrupt, Interrupted, click.Abort):
            code = ExitCode.INTERRUPTED
            if tells_as_json():
                say_problem(_problem(_INTERRUPTED, "interrupted; what was done stays done", code))
        except OutputLost as error:
            code = report(error, self._named)
            _drop_output()
        except Exception as error:
            code = report(error, self._named)
        if code == ExitCode.OUTPUT_CLOSED:
            _drop_output()
        sys.exit(int(code))

    def _run(
        self,
        args: Sequence[str] | None,
        prog_name: str | None,
        complete_var: str | None,
        extra: dict[str, Any],
    ) -> int:
        try:
            result = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            _flush()
        except BrokenPipeError:
            raise OutputClosed from None
        return result if isinstance(result, int) else 0

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; click would print an empty line for Ctrl-C."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Exit codes, from their one list."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), text) for code, text in EXIT_MEANINGS.items()])


def _flush() -> None:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputLost(error) from error


def _drop_output() -> None:
    """Leaves nothing for the interpreter to flush into a closed pipe at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):  # no real file, as under a test
        return


def code_of(error: Exception) -> ExitCode | None:
    """The exit code of an error that was foreseen; None for any other."""
    if isinstance(error, click.UsageError):
        return ExitCode.USAGE
    if isinstance(error, HyperbloomError) and error.kind is not None:
        return error.kind.exit_code
    return ExitCode.FAILED if isinstance(error, click.ClickException) else None


#: Type and title of what goes wrong here: the types that a node knows, too, have its meaning.
_FAILED = (ErrorKind.FAILED.type, ErrorKind.FAILED.title)
_UNEXPECTED = (ErrorKind.UNEXPECTED.type, "This met an unexpected error")
_USAGE = ("urn:hyperbloom:problem:usage", "The command line is wrong")
_INTERRUPTED = ("urn:hyperbloom:problem:interrupted", "This was interrupted")

#: What click raises, from 8.2 on, where a group is called without a command.
_HELP_INSTEAD: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())


def report(error: Exception, command: str = "hyperbloom") -> ExitCode:
    """Says on standard error what went wrong; the exit code for it."""
    code = code_of(error)
    kind: tuple[str, str] = _FAILED
    if code is None:
        details = _keep_details(error, command)
        told = _without_secrets(f"{type(error).__name__}: {error}")
        sentence = f"unexpected error ({told}); {details}"
        code, kind = ExitCode.UNEXPECTED, _UNEXPECTED
    elif isinstance(error, _HELP_INSTEAD) and not tells_as_json():
        error.show()
        return code
    elif isinstance(error, click.UsageError):
        command, kind = error.ctx.command_path if error.ctx is not None else "hyperbloom", _USAGE
        what = "Missing command" if isinstance(error, _HELP_INSTEAD) else error.format_message()
        sentence = f"{what.rstrip('.')} (see `{command} --help`)"
    elif isinstance(error, HyperbloomError) and error.kind is not None:
        sentence, kind = str(error), (error.kind.type, error.kind.title)
    else:
        sentence = error.format_message() if isinstance(error, click.ClickException) else str(error)
    sentence = " ".join(sentence.split())
    if tells_as_json():
        say_problem(_problem(kind, sentence, code))
    else:
        say(sentence)
    return code


def _problem(kind: tuple[str, str], sentence: str, code: ExitCode) -> dict[str, object]:
    """The members that the API's errors have (RFC 9457), and the exit code for the status."""
    return {"type": kind[0], "title": kind[1], "detail": sentence, "exit_code": int(code)}


def _command_words(root: click.Group, arguments: Sequence[str]) -> str:
    """The names of the commands among the arguments: all of a command line that is ever logged."""
    names, command = ["hyperbloom"], root
    for word in arguments:
        found = command.commands.get(word)
        if found is not None:
            names.append(word)
            if not isinstance(found, click.Group):
                break
            command = found
    return " ".join(names)


#: An invitation, and a key in hex: an error's text may repeat what it was about.
_SECRET = re.compile(r"hyperbloom:[\w-]{16,}|(?<![0-9A-Fa-f])[0-9A-Fa-f]{64}(?![0-9A-Fa-f])")


def _without_secrets(text: str) -> str:
    for argument in sys.argv[1:]:
        if len(argument) >= LEAST_HIDDEN:
            text = text.replace(argument, "…")
    return _SECRET.sub("…", text)


def _keep_details(error: Exception, command: str) -> str:
    """Writes the traceback where its reader finds it; says where, for the end of a sentence.

    No argument of the command is written: it may be an invitation or a key.
    """
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    path = Path(state) / "hyperbloom" / "cli.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with open(descriptor, "a", encoding="utf-8") as file:
            file.write(f"$ {command} …\n")
            file.write(_without_secrets("".join(traceback.format_exception(error))))
    except OSError as failure:
        return f"its details could not be written to {path} ({failure.strerror})"
    return f"the details are in {path}"
