"""What runs on the machines, as scripts of a POSIX shell: a machine needs nothing else that Windrow does not need.

Each allocation has a folder of its name there:

- `run` starts the agent, waits for it, and writes into `ended` how it ended. `agent` is the agent itself: a shell that
  writes down who it is, and becomes the agent.
- `keeper` and `pid` say who these two are: number, start, and the boot of the machine. A number alone may be that of
  another process by now.
- `cancelled` is there once somebody has cancelled it; `log` has what the agent printed.
"""

from __future__ import annotations

import secrets
import shlex
from string import Template

from windrow.fleet.provider import Request

KEPT_MINUTES = 60
"""So long the folder of an allocation that has ended is kept."""
LOG_LINES = 8
_END = "END-OF-THE-WINDROW-SCRIPT"
"""With a number that nobody can know before, so that no value of a variable ends the script."""

_FUNCTIONS = r"""
who() {
  # Number, start and boot of a process; nothing if it does not live.
  line=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  who_number=$1
  set -f
  # The name of the program is in parentheses, and may hold anything.
  set -- ${line##*) }
  set +f
  [ "$1" = Z ] || echo "$who_number ${20} $(cat /proc/sys/kernel/random/boot_id)"
}
"""

_ALIVE = r"""
lives() {
  # Whether the process that a file names is the one that wrote it.
  [ -s "$1" ] || return 1
  read -r lives_number lives_rest <"$1"
  [ "$(who "$lives_number")" = "$lives_number $lives_rest" ]
}
"""

_WRITE_SELF = r"""
who $$ >"$file.part"
mv "$file.part" "$file"
"""

_SUBMIT = Template(r"""
set -eu
umask 077
mkdir -p -- $base
cd -- $base
mkdir -- $name || { echo "$name is there already" >&2; exit 3; }
cd -- $name
printf '%s\n' $agent_folder >agent-folder
cat >run <<'$end'
$functions
file=keeper
$write_self
sh ./agent &
wait $$!
echo "exit $$?" >ended.part
mv ended.part ended
$end
cat >agent <<'$end'
$functions
file=pid
$write_self
# Its variables may be credentials, and scripts run as its user.
rm -f agent
$exports
exec $arguments
$end
# In a session of its own, it does not end with this one.
setsid nohup sh ./run </dev/null >>log 2>&1 &
tries=0
until [ -s pid ] || [ -s ended ]; do
  tries=$$((tries + 1))
  [ "$$tries" -le 100 ] || { echo "the agent does not start" >&2; exit 4; }
  sleep 0.1
done
cut -d ' ' -f 1 pid
""")

_LIST = Template(r"""
[ -d $base ] || exit 0
cd -- $base || exit 3
$functions
$alive
boot=$$(cat /proc/sys/kernel/random/boot_id)
for folder in ${prefix}*; do
  [ -d "$$folder" ] || continue
  number=; written=
  [ -s "$$folder/pid" ] && read -r number start written <"$$folder/pid"
  state=
  if [ ! -s "$$folder/ended" ] && { lives "$$folder/keeper" || lives "$$folder/pid"; }; then
    state=started
  elif [ -s "$$folder/ended" ]; then
    # One line: whoever can write there must not speak of other allocations.
    state=$$(head -c 64 "$$folder/ended" | head -n 1)
  elif [ -n "$$written" ] && [ "$$written" != "$$boot" ]; then
    state=rebooted
  elif [ -z "$$number" ] && [ -n "$$(find "$$folder" -maxdepth 0 -mmin -1)" ]; then
    state=started
  else
    state=gone
  fi
  if [ "$$state" != started ] && [ -n "$$(find "$$folder" -maxdepth 0 -mmin +$kept)" ]; then
    agent=$$(cat "$$folder/agent-folder")
    case $$agent in */windrow-"$$folder") rm -rf -- "$$agent" ;; esac
    rm -rf -- "$$folder"
    continue
  fi
  [ "$$state" != started ] && [ -e "$$folder/cancelled" ] && state="cancelled $$state"
  echo "$$folder $${number:--} $$state"
done
""")

_CANCEL = Template(r"""
cd -- $base/$name || exit 3
$functions
$alive
lives pid || { echo no; exit 0; }
: >cancelled
read -r number rest <pid
kill -TERM "$$number" && echo yes
""")

_LOG = Template(r"""
tail -n $lines -- $base/$name/log
""")


def submit(base: str, request: Request) -> str:
    """Starts the agent of an allocation; prints the number of its process."""
    exports = [f"export {name}={shlex.quote(value)}" for name, value in sorted(request.agent.environment.items())]
    return _SUBMIT.substitute(
        base=_path(base),
        name=request.name,
        end=f"{_END}-{secrets.token_hex(8)}",
        agent_folder=shlex.quote(request.agent.folder),
        functions=_FUNCTIONS,
        write_self=_WRITE_SELF,
        exports="\n".join(exports),
        arguments=shlex.join(request.agent.arguments),
    )


def list_all(base: str, prefix: str) -> str:
    """Prints a line for each allocation: its name, the number of its process or -, and its state. Removes what has
    ended long ago.
    """
    return _LIST.substitute(base=_path(base), prefix=prefix, functions=_FUNCTIONS, alive=_ALIVE, kept=KEPT_MINUTES)


def cancel(base: str, name: str) -> str:
    """Asks an agent to drain; prints yes, or no if it does not live."""
    return _CANCEL.substitute(base=_path(base), name=name, functions=_FUNCTIONS, alive=_ALIVE)


def log(base: str, name: str) -> str:
    """Prints the last lines that an agent wrote."""
    return _LOG.substitute(base=_path(base), name=name, lines=LOG_LINES)


def _path(base: str) -> str:
    """A folder, quoted; a relative one begins at the home of the user, where ssh begins."""
    home = base.removeprefix("~/")
    return shlex.quote(home)
