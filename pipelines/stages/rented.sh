# Run by sh -c on a rented machine: the bytes of the checkout that come first, then the order.
# Standard input stays open as long as somebody waits for the result: its end ends all of it.
exec 3<&0
size=$1
shift
room=$(mktemp -d "${TMPDIR:-/tmp}/wcw-lab.XXXXXX") || exit 1
leave() {
    [ -z "$job" ] || { kill -TERM "-$job"; wait "$job"; } 2>/dev/null
    [ -z "$watch" ] || kill "$watch" 2>/dev/null
    rm -rf "$room"
}
job='' watch=''
trap leave EXIT
trap 'exit 1' HUP INT TERM PIPE
head -c "$size" <&3 | tar xz -C "$room" || exit 1
(cat; kill -TERM $$) <&3 >/dev/null 2>&1 &
watch=$!
cd "$room" || exit 1
mkdir home && export HOME="$room/home" TMPDIR="$room/home"
unset XDG_CACHE_HOME XDG_CONFIG_HOME XDG_STATE_HOME
setsid sh -c 'scripts/setup && exec ./wcw "$@"' wcw "$@" </dev/null >&2 3<&- &
job=$!
wait "$job"
echo "$?" >code
job=''
set -- code
[ ! -e out/latest ] || set -- code "out/$(readlink out/latest)"
tar c --exclude='*.whl' "$@"
