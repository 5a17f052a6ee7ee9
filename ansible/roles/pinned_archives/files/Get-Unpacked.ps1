# The list of what is unpacked in a directory, as text, and whether its proof is there.
[CmdletBinding(SupportsShouldProcess)]
param(
    [Parameter(Mandatory)] [string] $Directory,
    [Parameter(Mandatory)] [string] $Proof
)
$Ansible.Changed = $false
$list = Join-Path $Directory '.archives.json'
if (Test-Path -LiteralPath $list) { [System.IO.File]::ReadAllText($list) } else { '{}' }
Test-Path -LiteralPath (Join-Path $Directory $Proof)
