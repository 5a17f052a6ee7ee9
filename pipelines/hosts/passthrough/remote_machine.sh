# Prints what linux.py reads of a machine, a line a file: for an engine whose machine is not this
# one. F: the bytes of a file, L: a symbolic link, N: something that is there, D: a directory.
# $1: the machine's root as it is seen from here, $2: its /proc.
file() { [ -f "$1/$2" ] && printf 'F %s %s\n' "$2" "$(head -c 4096 "$1/$2" 2>/dev/null | od -An -v -tx1 | tr -d ' \n')"; }
link() { [ -L "$1" ] && printf 'L %s %s\n' "$1" "$(readlink "$1")"; }
there() { [ -e "$1" ] && printf 'N %s\n' "$1"; }
cd "$1" || exit 1
for place in sys/bus/pci/devices/* sys/kernel/iommu_groups/*; do
  [ -d "$place" ] && printf 'D %s\n' "$place"
done
for place in sys/bus/pci/devices/*; do
  for name in vendor device class resource; do file . "$place/$name"; done
  link "$place/driver"
  link "$place/iommu_group"
done
for place in dev/kvm dev/vfio/*; do there "$place"; done
file "$2/.." proc/cpuinfo
file "$2/.." proc/cmdline
echo END
