#!/bin/bash
# What /run/entry.sh of dockurr/windows is seen to do from outside: the same variables, files, words
# and exit codes (https://github.com/dockur/windows, https://github.com/qemus/qemu).
set -u
: "${RAM_SIZE:=4G}" "${CPU_CORES:=2}" "${KVM:=Y}" "${TIMEOUT:=105}" "${ARGUMENTS:=}" "${DISK_FMT:=}"
: "${VERSION:=11}"
disk=/storage/data.qcow2
echo "❯ Starting the stand-in for Windows..."
case "${USERNAME:-}${PASSWORD:-}${KEY:-}" in ?*) echo "a secret in a variable" >&2; exit 99 ;; esac
accel=kvm cpu=host timer=""
if [ "$KVM" = N ]; then
    # QEMU 7.2: with SMAP and PKU Wine faults under TCG. On a busy machine the guest may miss its one
    # timer and sleep for ever; it does not miss all of a periodic one.
    accel=tcg,thread=multi cpu=max,-smap,-pku timer="nohz=off highres=off"
elif [ ! -e /dev/kvm ] || ! sh -c 'echo -n > /dev/kvm' 2>/dev/null; then
    echo "ERROR: KVM acceleration is not available (/dev/kvm is missing)" >&2
    exit 88
fi
install=""
if [ ! -s "$disk" ] || [ ! -f /storage/windows.boot ]; then
    [ "$DISK_FMT" = qcow2 ] || { echo "ERROR: the stand-in installs qcow2 only" >&2; exit 78; }
    [ -d /oem ] || { echo "ERROR: no /oem" >&2; exit 64; }
    echo "❯ Installing Windows $VERSION, edition ${EDITION:-standard}..."
    rm -f /storage/windows.*
    cp /run/guest/installed.qcow2 "$disk" || exit 77
    printf 'standin.iso\n' > /storage/windows.base
    printf '02:00:00:00:00:01\n' > /storage/windows.mac
    install="standin_install=yes"
fi
share=()
for name in shared oem; do
    [ -d "/$name" ] && share+=(-virtfs "local,path=/$name,mount_tag=$name,security_model=none")
done
# shellcheck disable=SC2086  # ARGUMENTS are words
qemu-system-x86_64 -nodefaults -M q35 -accel "$accel" -cpu "$cpu" -m "$RAM_SIZE" -smp "$CPU_CORES" \
    -display none -serial stdio -monitor unix:/run/monitor,server=on,wait=off \
    -kernel /run/guest/vmlinuz -initrd /run/guest/initrd \
    -append "console=ttyS0 quiet root=/dev/vda rw init=/sbin/guest-init panic=1 net.ifnames=0 $timer $install" \
    -drive "file=$disk,if=virtio,format=qcow2,cache=writeback,discard=unmap" \
    -netdev user,id=n,hostfwd=tcp::5986-:5986 -device virtio-net-pci,netdev=n \
    "${share[@]}" $ARGUMENTS </dev/null &
pid=$!
down() {
    echo "❯ Received SIGTERM signal, sending ACPI shutdown signal..."
    echo system_powerdown | socat - UNIX-CONNECT:/run/monitor >/dev/null 2>&1
    for _ in $(seq $((TIMEOUT * 5))); do
        kill -0 "$pid" 2>/dev/null || return
        sleep 0.2
    done
    echo "❯ no answer, ending QEMU"
    kill -9 "$pid"
}
trap down TERM
wait "$pid"; code=$?
while kill -0 "$pid" 2>/dev/null; do wait "$pid"; code=$?; done
[ -z "$install" ] || [ "$code" != 0 ] || touch /storage/windows.boot
echo "❯ Shutdown completed!"
exit "$code"
