"""kwire profile: stores the addresses and logins of servers under a name, in a file of the user."""

import argparse
import os
import sys

from kwire.cli.connection.profiles import (
    CONFIG_VARIABLE,
    PROFILE_VARIABLE,
    SECRET_SETTINGS,
    Profile,
    check_setting,
    chosen_profile,
    profiles_path,
    read_profiles,
    shown_settings,
    write_profiles,
)
from kwire.cli.framework.confirmation import add_yes, confirm, counted_names
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import add_output, print_done, print_object, print_rows
from kwire.cli.framework.parser import CommandParser, add_verb
from kwire.cli.framework.printable import printable
from kwire.cli.framework.several_names import for_each

COLUMNS = ("current", "profile", "bootstrap.servers", "kwire.http")
WIDE = ("security.protocol", "sasl.username")

END = f"""\
A setting comes from the first of these that has it: an option (also the file of --command-config), an environment
variable, the profile, the default. The profile is that of --profile, of {PROFILE_VARIABLE}, or the current one.

The file is $XDG_CONFIG_HOME/kwire/profiles.yaml or ~/.config/kwire/profiles.yaml; {CONFIG_VARIABLE} names another.

examples:
  kwire profile set local bootstrap.servers=127.0.0.1:9092 kwire.http=http://127.0.0.1:8082
  kwire profile set production bootstrap.servers=kafka.example.org:9093 security.protocol=SASL_SSL \\
      sasl.username=alice sasl.password
  kwire profile use production
  kwire topic list --profile local
"""

SET = """\
Create a profile, or change settings of it. The names of the settings are Kafka's; kwire.http is the URL of the HTTP
port. NAME= removes a setting. The value of a password is not an argument, because other users could see it: name the
setting without a value, and it is asked for, or read from a line of standard input.
"""


def add(parser: CommandParser) -> None:
    parser.epilog = END
    verbs = parser.verbs()
    add_output(add_verb(verbs, "list", "list profiles", list_profiles))
    show_ = add_verb(verbs, "show", "show the settings of a profile, without passwords", show)
    show_.add_argument("name", metavar="NAME", nargs="?", help="default: the profile that commands use now")
    add_output(show_)
    use_ = add_verb(verbs, "use", "make a profile the current one, which commands use", use)
    use_.add_argument("name", metavar="NAME", nargs="?")
    use_.add_argument("--none", action="store_true", help="use no profile")
    set_ = add_verb(verbs, "set", "create a profile, or change settings of it", change, description=SET)
    set_.add_argument("name", metavar="NAME")
    set_.add_argument("settings", metavar="SETTING=VALUE", nargs="+")
    delete_ = add_verb(verbs, "delete", "delete profiles", delete)
    delete_.add_argument("names", metavar="NAME", nargs="+")
    add_yes(delete_)
    for changing in (use_, set_, delete_):
        add_output(changing)


def list_profiles(options: argparse.Namespace) -> None:
    profiles = read_profiles(profiles_path(os.environ))
    named = os.environ.get(PROFILE_VARIABLE) or profiles.current
    rows = [
        {
            "profile": name,
            "current": name == named,
            **{column: profile.get(column) for column in (*COLUMNS[2:], *WIDE)},
        }
        for name, profile in sorted(profiles.by_name.items())
    ]
    print_rows(rows, COLUMNS, options, wide=WIDE)


def show(options: argparse.Namespace) -> None:
    chosen = chosen_profile(options.name, os.environ)
    if chosen is None:
        raise ValueError("there is no current profile: name one, or choose it with kwire profile use")
    name, settings = chosen[0], shown_settings(chosen[1])

    def print_text() -> None:
        print(f"profile {printable(name)}")
        for setting, value in settings.items():
            print(printable(f"{setting}={value}"))

    print_object({"profile": name, "settings": settings}, options, print_text)


def use(options: argparse.Namespace) -> None:
    if options.none == (options.name is not None):
        raise UsageError("name one profile, or --none")
    path = profiles_path(os.environ)
    profiles = read_profiles(path)
    if options.name is not None:
        profiles.named(options.name)
    profiles.current = options.name
    write_profiles(path, profiles)
    print_done("using", ["no profile" if options.name is None else options.name], options)


def change(options: argparse.Namespace) -> None:
    path = profiles_path(os.environ)
    profiles = read_profiles(path)
    profile = profiles.by_name.setdefault(options.name, {})
    for text in options.settings:
        _apply(profile, text)
    write_profiles(path, profiles)
    print_done("set", [options.name], options)


def delete(options: argparse.Namespace) -> int:
    confirm(f"delete {counted_names('profile', options.names)}", options)
    path = profiles_path(os.environ)
    profiles = read_profiles(path)

    def delete_one(name: str) -> None:
        if profiles.by_name.pop(name, None) is None:
            raise ValueError(f"profile {name} does not exist")
        profiles.current = None if profiles.current == name else profiles.current

    outcomes = for_each(options.names, delete_one)
    write_profiles(path, profiles)
    return outcomes.finish("deleted", options)


def _apply(profile: Profile, text: str) -> None:
    name, equals, value = text.partition("=")
    try:
        check_setting(name)
    except ValueError as problem:
        raise UsageError(str(problem)) from None
    if equals and not value:
        profile.pop(name, None)
    elif name in SECRET_SETTINGS:
        if equals:
            raise UsageError(f"{name}: other users can see arguments; name it without a value, and it is asked for")
        profile[name] = _secret(name)
    elif equals:
        profile[name] = value
    else:
        raise UsageError(f"expected SETTING=VALUE, got {text!r}")


def _secret(name: str) -> str:
    if sys.stdin.isatty():
        import getpass

        value = getpass.getpass(f"{name}: ")
    else:
        # Only the end of the line is removed: spaces may belong to the password.
        value = sys.stdin.readline().rstrip("\r\n")
    if not value:
        raise UsageError(f"{name}: the value is missing")
    return value
