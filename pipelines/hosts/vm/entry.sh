# Around the entry point of an image that runs QEMU and is not ours: creates the overlay before it,
# and a watchdog next to it. $1 is "tied" or "kept", the rest is the image's own entry point.
life=$1
shift
exec 3<&0
if [ -e /golden/data.qcow2 ] && [ ! -e /storage/data.qcow2 ]; then
    # All that is written goes to /storage, which is the container's own and goes with it.
    cp /golden/windows.* /storage/ &&
        qemu-img create -q -f qcow2 -F qcow2 -b /golden/data.qcow2 /storage/overlay.new &&
        mv /storage/overlay.new /storage/data.qcow2 || exit 122
fi
# Before the entry point, for what that prints may be answered with a signal at once.
trap '[ -n "$!" ] || exit 143; kill -TERM "${child:-$!}"' TERM
"$@" </dev/null 3<&- &
child=$!
if [ "$life" = tied ]; then
    # The controller has ended, however that was. Of its machine nothing is kept: no goodbye.
    { cat <&3 >/dev/null; kill -KILL "$child"; } &
fi
exec 3<&-
wait "$child"
code=$?
while kill -0 "$child" 2>/dev/null; do # a signal wakes it before the end
    wait "$child"
    code=$?
done
exit "$code"
