#!/bin/bash
# The completion by bash itself, against what `attnd --help` lists: completion.sh BUILD. Prints what is wrong.
set -u
build=${1:?usage: completion.sh BUILD}
help=$("$build/attnd" --help)
. "$build/attnd.bash"
[ "$(complete -p attnd)" = "complete -F _attnd attnd" ] || echo "bash was told: $(complete -p attnd)"

expect() { # LINE WORD...: what may stand where the line ends, in any order
    local COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDBREAKS=$' \t\n"\'><=;|&(:' want got
    shift
    _attnd attnd
    want=$(printf '%s\n' "$@" | sort) got=$(printf '%s\n' "${COMPREPLY[@]}" | sort)
    [ "$want" = "$got" ] || { echo "after \"$COMP_LINE\":"; diff <(echo "$want") <(echo "$got"); }
}
listed() { sed -n "$1" <<<"$help"; }

commands=$(listed 's/^  attnd \([^ ]*\).*/\1/p')
flags=$(listed 's/^  \(--[a-z_-]*\).*/\1/p')
keys=$(listed 's/^  \([a-z_.]*\) = .*/\1=/p')
expect 'attnd ' $commands $flags
expect 'attnd se' serve
expect 'attnd --' --version --help $flags
expect 'attnd check ' # no operand
expect 'attnd serve --' --help $flags
expect 'attnd --set ' $keys
expect 'attnd check --set mem' memory.budget=
expect 'attnd --set=mem' memory.budget=
expect 'attnd --set memory.budget=' auto
expect 'attnd --set log.level=' error warn info debug
expect 'attnd --set log.level=d' debug
expect 'attnd --set compute.pin=' true false
expect 'attnd --set=compute.pin=t' true
expect 'attnd --listen '
expect 'attnd check --print-config --conf' --config
expect 'attnd bench --ma' --maps
expect 'attnd bench --shape '
expect 'attnd inspect --' --json --help
expect 'attnd no-such-command '
while read -r command arguments; do
    [[ $arguments != *OPTIONS* ]] || continue
    expect "attnd $command --" --help $(grep -o -- '--[a-z-]*' <<<"$arguments")
done < <(listed 's/^  attnd \([a-z].*\)/\1/p')

# Files, by every way that asks for one.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/models"
touch "$folder/my weights.npz"
both=("$folder/models" "$folder/my weights.npz")
expect "attnd inspect $folder/m" "${both[@]}"
expect "attnd inspect --json $folder/m" "${both[@]}"
expect "attnd demo $folder/m" "$folder/models"
expect "attnd --config $folder/m" "${both[@]}"
expect "attnd --config=$folder/m" "${both[@]}"
expect "attnd --model $folder/m" "${both[@]}"
expect "attnd --model tiny=$folder/m" "${both[@]}"
for key in $keys; do
    [[ $key != *_file= ]] || expect "attnd --set $key$folder/m" "${both[@]}"
done

# And as somebody types it.
typed=$(/usr/bin/python3 - "$build/attnd.bash" <<'END'
import os, pty, select, sys, time
pid, fd = pty.fork()
if pid == 0:
    os.environ.update(PS1="> ", TERM="dumb", INPUTRC="/dev/null")
    os.execvp("bash", ["bash", "--norc", "--noprofile"])
def say(text, until):
    os.write(fd, text.encode())
    seen, end = b"", time.monotonic() + 10
    while until not in seen and time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            seen += os.read(fd, 4096)
    return seen.decode()
say(f". '{sys.argv[1]}'; echo loa''ded\n", b"loaded\r\n")
text = say("attnd check --set log.le\td\t", b"debug")
print("" if "log.level=debug" in text else f"bash shows {text!r}")
os.write(fd, b"\x03exit\n")
END
)
[ -z "$typed" ] || echo "$typed"
